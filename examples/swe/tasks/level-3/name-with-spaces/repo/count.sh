# Print the number of lines of each file, then the sum.
sum=0
for file in $*; do
    lines=$(grep -c '' < "$file")
    echo "$lines $file"
    sum=$((sum + lines))
done
echo "$sum total"

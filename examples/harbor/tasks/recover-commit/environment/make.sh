set -e
export GIT_AUTHOR_NAME=author GIT_AUTHOR_EMAIL=author@example.org GIT_COMMITTER_NAME=author GIT_COMMITTER_EMAIL=author@example.org
git init --quiet --initial-branch main .
echo "# One" >chapter-one.md
git add --all && git commit --quiet --message "Add chapter one"
echo "# Two" >chapter-two.md
git add --all && git commit --quiet --message "Add chapter two"
git reset --quiet --hard HEAD~1
echo "A first sentence." >>chapter-one.md

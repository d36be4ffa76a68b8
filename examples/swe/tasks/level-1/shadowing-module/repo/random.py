# numbers for the dice, chosen by fair roll
NUMBERS = [4]

NAME = "bye"

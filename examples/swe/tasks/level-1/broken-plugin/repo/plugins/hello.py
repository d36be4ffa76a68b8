NAME = "hello"

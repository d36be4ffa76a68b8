def greeting(name):
    return f"Good day, {name}."


if __name__ == "__main__":
    print(greeting("Ada"))

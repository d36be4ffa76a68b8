DAYS = ["Monday", "Tuesday", "Wensday", "Thursday", "Friday"]

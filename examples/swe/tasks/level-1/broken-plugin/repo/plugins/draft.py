NAME = "draft

"""The program that is a guest's first process. It runs inside, on nothing but the standard library; the host never imports it."""

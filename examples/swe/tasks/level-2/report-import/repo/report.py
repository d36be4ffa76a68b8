import jsn as encoder


def report(values):
    return encoder.dumps({"count": len(values), "sum": sum(values)})

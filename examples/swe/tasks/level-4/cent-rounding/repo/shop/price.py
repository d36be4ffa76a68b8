def net(price, percent_off):
    return round(price * (1 - percent_off / 100), 2)

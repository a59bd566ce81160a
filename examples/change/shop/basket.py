"""What a customer is about to buy."""


class Basket:
    def __init__(self):
        self.items = []

    def add(self, name, price, count=1):
        self.items.append((name, price, count))

    def total(self):
        return sum(price for _, price, _ in self.items)

import unittest

from shop.basket import Basket


class Total(unittest.TestCase):
    def test_one_of_each(self):
        basket = Basket()
        basket.add("pen", 2)
        basket.add("book", 10)
        self.assertEqual(basket.total(), 12)


if __name__ == "__main__":
    unittest.main()

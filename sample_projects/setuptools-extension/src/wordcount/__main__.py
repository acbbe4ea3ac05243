"""Counts the words of its arguments; with --forever, once a second."""

import sys
import time

from . import count

words = [word for word in sys.argv[1:] if word != "--forever"]
text = " ".join(words)
print(count(text))
while "--forever" in sys.argv:
    time.sleep(1)
    count(text)

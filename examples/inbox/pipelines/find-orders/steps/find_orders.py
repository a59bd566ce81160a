"""The order numbers in the folder `mail`, each once."""

import json
import re
import sys
from pathlib import Path

sys.stdin.read()
mail = Path(__file__).resolve().parents[3] / "mail"
texts = [path.read_text(encoding="utf-8") for path in mail.glob("*.txt")]
print(json.dumps({"output": sorted({order for text in texts for order in re.findall(r"\bA-\d{4}\b", text)})}))

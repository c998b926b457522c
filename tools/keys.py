"""Write the table of a study's keys into its guide, from the schema."""

import re
from pathlib import Path

from urna.study.schema import keys_table

GUIDE = Path(__file__).parent.parent / "docs" / "guide" / "study.md"

text = GUIDE.read_text(encoding="utf-8")
table = re.compile(r"^### At the top\n.*?\Z", re.DOTALL | re.MULTILINE)
GUIDE.write_text(table.sub(lambda _: keys_table().strip() + "\n", text), encoding="utf-8")

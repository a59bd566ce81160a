"""all-MiniLM-L6-v2 in plain numpy: no deep-learning framework is needed to measure with it.

`python minilm.py MODEL_DIR DATA_JSON OUT_FILE` embeds every text of the CLINC150 file and writes the vectors that
`cargo run -p etude-route --release --example clinc -- DATA --vectors OUT_FILE` reads. MODEL_DIR holds
`model.safetensors` and `tokenizer.json`.

The file: `u32` count, `u32` dimensions, then for each text `u32` byte length, the UTF-8 bytes, and the `f32` values,
all little endian.
"""
import json
import struct
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

LAYERS, HEADS, WIDTH = 6, 12, 384


def erf(x):
    """Abramowitz and Stegun 7.1.26, exact to 1.5e-7: enough for a float32 GELU."""
    sign, x = np.sign(x), np.abs(x)
    t = 1 / (1 + 0.3275911 * x)
    poly = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t
    return (sign * (1 - poly * np.exp(-x * x))).astype(np.float32)


class MiniLM:
    def __init__(self, directory):
        directory = Path(directory)
        self.w = {k.removeprefix("bert."): v.astype(np.float32) for k, v in load_file(directory / "model.safetensors").items() if v.dtype.kind == "f"}
        self.tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(256)

    def linear(self, x, name):
        return x @ self.w[name + ".weight"].T + self.w[name + ".bias"]

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12)
        return x * self.w[name + ".weight"] + self.w[name + ".bias"]

    def forward(self, ids):
        """`ids` has one row a text, all rows of one length, so that no mask is needed."""
        n, length = ids.shape
        e = "embeddings."
        x = self.w[e + "word_embeddings.weight"][ids] + self.w[e + "position_embeddings.weight"][:length]
        x = self.norm(x + self.w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
        for layer in range(LAYERS):
            p = f"encoder.layer.{layer}."
            split = lambda y: y.reshape(n, length, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)
            q, k, v = (split(self.linear(x, f"{p}attention.self.{part}")) for part in ("query", "key", "value"))
            a = q @ k.transpose(0, 1, 3, 2) / np.sqrt(WIDTH / HEADS)
            a = np.exp(a - a.max(-1, keepdims=True))
            a /= a.sum(-1, keepdims=True)
            c = (a @ v).transpose(0, 2, 1, 3).reshape(n, length, WIDTH)
            x = self.norm(self.linear(c, p + "attention.output.dense") + x, p + "attention.output.LayerNorm")
            h = self.linear(x, p + "intermediate.dense")
            h = h * 0.5 * (1 + erf(h / np.float32(np.sqrt(2))))
            x = self.norm(self.linear(h, p + "output.dense") + x, p + "output.LayerNorm")
        pooled = x.mean(1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    def encode(self, texts, batch=128):
        ids = [e.ids for e in self.tokenizer.encode_batch(list(texts))]
        out = np.zeros((len(ids), WIDTH), np.float32)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        start = 0
        while start < len(order):
            length = len(ids[order[start]])
            end = start
            while end < len(order) and end - start < batch and len(ids[order[end]]) == length:
                end += 1
            rows = order[start:end]
            out[rows] = self.forward(np.array([ids[i] for i in rows]))
            start = end
        return out


def write_vectors(path, texts, vectors):
    with open(path, "wb") as f:
        f.write(struct.pack("<II", len(texts), vectors.shape[1]))
        for text, vector in zip(texts, vectors):
            raw = text.encode()
            f.write(struct.pack("<I", len(raw)) + raw + vector.astype("<f4").tobytes())


def read_vectors(path):
    raw, at, found = Path(path).read_bytes(), 8, {}
    count, width = struct.unpack_from("<II", raw)
    for _ in range(count):
        (size,) = struct.unpack_from("<I", raw, at)
        text = raw[at + 4:at + 4 + size].decode()
        at += 4 + size
        found[text] = np.frombuffer(raw, "<f4", width, at)
        at += 4 * width
    return found


def main():
    model_dir, data, out = sys.argv[1:4]
    rows = [row for split in json.load(open(data)).values() for row in split]
    texts = sorted({t for t, _ in rows} | {y.replace("_", " ") for _, y in rows})
    write_vectors(out, texts, MiniLM(model_dir).encode(texts))


if __name__ == "__main__":
    main()

"""The peers on the same split: TF-IDF with a linear SVM, and MiniLM with the nearest centroid.

`python peers.py data_full.json [VECTORS]`; needs scikit-learn. VECTORS is what `minilm.py` wrote. Triggers are the first
5 and 10 phrases of each intent in the train part. The SVM is shown as usually set up (words, no description) and
strengthened (words, pairs and letter sequences, with the description). The out-of-scope threshold is the one that is
best on validation for (right in scope + rejected out of scope).
"""
import json
import sys

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_union
from sklearn.svm import LinearSVC

from minilm import read_vectors


def first(rows, count):
    seen, out = {}, []
    for text, intent in rows:
        if seen.get(intent, 0) < count:
            seen[intent] = seen.get(intent, 0) + 1
            out.append((text, intent))
    return out


def words():
    return TfidfVectorizer(sublinear_tf=True)


def words_and_letters():
    return make_union(
        TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=r"\S+"),
        TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(3, 5)),
    )


def svm(vectorizer, texts, labels):
    model = LinearSVC(C=1).fit(vectorizer.fit_transform(texts), labels)
    return lambda requests: model.decision_function(vectorizer.transform(requests))


def centroid(vectors, texts, labels, classes):
    means = np.zeros((classes, len(next(iter(vectors.values())))))
    for text, label in zip(texts, labels):
        means[label] += vectors[text]
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return lambda requests: np.array([vectors[r] for r in requests]) @ means.T


def report(name, shots, score, data, index):
    rows = {}
    for part in ("val", "test"):
        texts, truth = [t for t, _ in data[part]], np.array([index[y] for _, y in data[part]])
        inside, outside = score(texts), score([t for t, _ in data["oos_" + part]])
        rows[part] = inside.argmax(1) == truth, inside.max(1), outside.max(1)
    right, inside, outside = rows["val"]
    cuts = np.quantile(np.r_[inside, outside], np.linspace(0, 1, 200))
    cut = max(cuts, key=lambda c: (right & (inside >= c)).mean() + (outside < c).mean())
    right, inside, outside = rows["test"]
    area = roc_auc_score([1] * len(inside) + [0] * len(outside), np.r_[inside, outside])
    print(f"| {name} | {shots} | {right.mean():.1%} | {(right & (inside >= cut)).mean():.1%} | {(outside < cut).mean():.1%} | {area:.3f} |", flush=True)


def main():
    data = json.load(open(sys.argv[1]))
    vectors = read_vectors(sys.argv[2]) if len(sys.argv) > 2 else None
    names = sorted({intent for _, intent in data["train"]})
    index = {name: at for at, name in enumerate(names)}
    print("| method | phrases | forced choice | with rejection | out-of-scope recall | AUROC |\n|---|---|---|---|---|---|")
    for shots in (5, 10):
        rows = first(data["train"], shots)
        texts, labels = [t for t, _ in rows], [index[y] for _, y in rows]
        more, most = texts + [n.replace("_", " ") for n in names], labels + list(range(len(names)))
        report("TF-IDF words + SVM", shots, svm(words(), texts, labels), data, index)
        report("TF-IDF words, pairs, letters, description + SVM", shots, svm(words_and_letters(), more, most), data, index)
        if vectors:
            report("MiniLM centroid", shots, centroid(vectors, texts, labels, len(names)), data, index)
            report("MiniLM centroid with description", shots, centroid(vectors, more, most, len(names)), data, index)


if __name__ == "__main__":
    main()

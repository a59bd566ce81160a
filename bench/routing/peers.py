"""The peers on the same split: TF-IDF with a linear SVM, sentence vectors with the nearest centroid and with logistic
regression.

`python peers.py data_full.json [VECTORS]...`; needs scikit-learn. VECTORS is what `minilm.py` or `use.py` wrote; of two
such files, both and their vectors side by side are measured. Triggers are the first 5 and 10 phrases of each intent in the train part. The SVM is shown as usually set up (words, no description) and
strengthened (words, pairs and letter sequences, with the description). The out-of-scope threshold is the one that is
best on validation for (right in scope + rejected out of scope).
"""
import json
import sys
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
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


def logistic(vectors, texts, labels):
    model = LogisticRegression(C=20, max_iter=300).fit(np.array([vectors[t] for t in texts]), labels)
    return lambda requests: model.decision_function(np.array([vectors[r] for r in requests]))


def encoders(paths):
    found = {Path(path).stem: read_vectors(path) for path in paths}
    if len(found) > 1:
        found[" and ".join(found)] = {t: np.concatenate([v[t] for v in found.values()]) / len(found) ** 0.5 for t in next(iter(found.values()))}
    return found


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
    encoded = encoders(sys.argv[2:])
    names = sorted({intent for _, intent in data["train"]})
    index = {name: at for at, name in enumerate(names)}
    print("| method | phrases | forced choice | with rejection | out-of-scope recall | AUROC |\n|---|---|---|---|---|---|")
    for shots in (5, 10):
        rows = first(data["train"], shots)
        texts, labels = [t for t, _ in rows], [index[y] for _, y in rows]
        more, most = texts + [n.replace("_", " ") for n in names], labels + list(range(len(names)))
        report("TF-IDF words + SVM", shots, svm(words(), texts, labels), data, index)
        report("TF-IDF words, pairs, letters, description + SVM", shots, svm(words_and_letters(), more, most), data, index)
        for name, vectors in encoded.items():
            report(f"{name} centroid", shots, centroid(vectors, texts, labels, len(names)), data, index)
            report(f"{name} centroid with description", shots, centroid(vectors, more, most, len(names)), data, index)
            report(f"{name} logistic regression with description", shots, logistic(vectors, more, most), data, index)


if __name__ == "__main__":
    main()

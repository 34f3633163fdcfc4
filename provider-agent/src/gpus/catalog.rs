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

/// Work of a real card by the product name that NVML prints, e.g. `NVIDIA H100 80GB HBM3`: that of the first model
/// all of whose family words stand in the name and whose memory is nearest; 1000 for an unknown card.
#[must_use]
pub fn work_of(product: &str, mem_bytes: u64) -> u32 {
    let words: Vec<&str> = product.split([' ', '-', '_']).collect();
    models()
        .iter()
        .filter(|model| {
            let mut family = model.model.split(' ').filter(|word| !word.ends_with("GB"));
            family.all(|word| words.contains(&word))
        })
        .min_by_key(|model| model.mem_bytes.abs_diff(mem_bytes))
        .map_or(1000, |model| model.work_milli)
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
        assert_eq!(work_of("NVIDIA H100 80GB HBM3", 80 << 30), 3170);
        assert_eq!(work_of("NVIDIA A100-SXM4-40GB", 40 << 30), 1000);
        assert_eq!(work_of("NVIDIA GeForce RTX 4090", 24 << 30), 530);
        assert_eq!(work_of("Some Card", 8 << 30), 1000);
    }
}

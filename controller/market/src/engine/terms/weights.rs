//! Every weight of the objective, by name. All of them are integers; milli is a thousandth of a GPU.

use super::grain::MILLI;

/// How far ahead the slot price looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    /// Until the fleet is full: what can still be filled, over the mean GPU of an arrival. For work that never departs.
    UntilFull,
    /// So many arrivals. Under departures a quarter of a mean life's arrivals; see [`super::Terms::set_horizon`].
    Arrivals(u32),
}

/// Which capacity the model price balances against demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// What can still be filled.
    Fillable,
    /// All there is: steady under departures.
    Total,
}

/// The weights of one objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Weight of the drop of the fill-out value, in sixteenths. 0: the value is never computed.
    pub fill: u32,
    /// Weight of the drop of fragmentation (the gradient), in sixteenths.
    pub frag: u32,
    /// Charge per milli left on the node after a GPU placement, in thousandths of a milli.
    pub pack: u32,
    /// Width of one step of the score, in milli.
    pub bucket: u32,
    /// Price of a slot per whole GPU in it, at full scarcity, in milli.
    pub slot: u32,
    /// How far ahead the slot price looks.
    pub horizon: Horizon,
    /// Price of a model per natural logarithm of its scarcity, in milli per GPU.
    pub model: u32,
    /// Most the model price can be, in milli per GPU.
    pub model_cap: u32,
    /// What the model price balances.
    pub capacity: Capacity,
    /// Charge for keeping a node busy a mean life longer, in milli.
    pub end: u32,
    /// Weight of fill-out on MIG devices, in tenths; the gradient has the rest.
    pub mig_fill: u32,
    /// Charge for keeping a whole MIG device busy a mean life longer, in milli of a memory slice.
    pub mig_end: u32,
}

impl Weights {
    /// What a node gains, in grains: `lost` milli less expected to stay unused, summed over the futures; `frag` less
    /// fragmentation, in 2^-16 milli; and `open` milli left on it after the placement.
    #[must_use]
    pub fn gain(&self, lost: i64, frag: i64, open: u32) -> i64 {
        // A sixteenth of the weight and one of the futures' sum: 2^-8 of a milli.
        let fill = lost.saturating_mul(self.fill.into()).saturating_mul(MILLI >> 8);
        let frag = frag.saturating_mul(self.frag.into()); // 2^-16 of a milli and a sixteenth: a grain
        let pack = i64::from(open).saturating_mul(self.pack.into()).saturating_mul(MILLI) / 1000;
        fill.saturating_add(frag).saturating_sub(pack)
    }

    /// For work that departs: half fill-out and half gradient, some packing, steady prices, lease ends.
    pub const MARKET: Self = Self {
        fill: 8,
        frag: 8,
        pack: 50,
        bucket: 40,
        slot: 1000,
        horizon: Horizon::Arrivals(2000),
        model: 400,
        model_cap: 1600,
        capacity: Capacity::Total,
        end: 400,
        mig_fill: 7,
        mig_end: 1000,
    };

    /// For work that only arrives: fill-out and both prices, nothing else.
    pub const FILL: Self = Self {
        fill: 16,
        frag: 0,
        pack: 0,
        bucket: 80,
        horizon: Horizon::UntilFull,
        capacity: Capacity::Fillable,
        end: 0,
        mig_end: 0,
        ..Self::MARKET
    };

    /// The gradient with steady prices, packing and lease ends, without fill-out: what the fill-out half of
    /// [`Self::MARKET`] has to beat.
    pub const GRADIENT: Self = Self { fill: 0, frag: 16, pack: 200, bucket: 80, mig_fill: 0, ..Self::MARKET };

    /// No term, price or charge; of a MIG table the gradient.
    pub const NONE: Self = Self {
        fill: 0,
        frag: 0,
        pack: 0,
        bucket: 1,
        slot: 0,
        model: 0,
        end: 0,
        mig_fill: 0,
        mig_end: 0,
        ..Self::MARKET
    };

    /// The preset of that name: `market`, `fill` or `gradient`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "market" => Some(Self::MARKET),
            "fill" => Some(Self::FILL),
            "gradient" => Some(Self::GRADIENT),
            _ => None,
        }
    }
}

//! Typed REST client of a Selion controller.

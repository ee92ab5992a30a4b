//! Which redirect is followed (L8).

//! The one integration binary, a line a module: real servers start once for all of them.

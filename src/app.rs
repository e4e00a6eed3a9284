//! Starts and stops the parts in a written order.

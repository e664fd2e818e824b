//! What do clients and members say to each other?

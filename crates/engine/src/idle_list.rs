//! Ids in order of use, the least recently used first.

/// The end of a list.
const NONE: u32 = u32::MAX;

/// A doubly linked list in arrays: every operation is O(1) and allocates nothing.
pub(crate) struct IdleList {
    older: Vec<u32>,
    newer: Vec<u32>,
    oldest: u32,
    newest: u32,
    len: usize,
}

impl IdleList {
    pub(crate) fn new(items: usize) -> Self {
        Self {
            older: vec![NONE; items],
            newer: vec![NONE; items],
            oldest: NONE,
            newest: NONE,
            len: 0,
        }
    }

    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    pub(crate) fn push_newest(&mut self, item: u32) {
        self.older[item as usize] = self.newest;
        self.newer[item as usize] = NONE;
        match self.newest {
            NONE => self.oldest = item,
            newest => self.newer[newest as usize] = item,
        }
        self.newest = item;
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, item: u32) {
        let (older, newer) = (self.older[item as usize], self.newer[item as usize]);
        match older {
            NONE => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        self.len -= 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The items, oldest first. Panics where their number is not the length.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        let after = |item: u32| (item != NONE).then_some(item);
        let items = std::iter::successors(after(self.oldest), move |&item| {
            after(self.newer[item as usize])
        });
        assert_eq!(
            items.clone().count(),
            self.len,
            "items of a list and its length"
        );
        items
    }
}

//! Strongly connected components of a graph (Tarjan, 1972).

/// Components of more than one node, the largest first.
pub(super) fn circles(arrows: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        arrows,
        index: vec![None; arrows.len()],
        low: vec![0; arrows.len()],
        on_stack: vec![false; arrows.len()],
        stack: Vec::new(),
        next: 0,
        found: Vec::new(),
    };
    for node in 0..arrows.len() {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    search.found.retain(|component| component.len() > 1);
    search.found.sort_by_key(|c| std::cmp::Reverse(c.len()));
    search.found
}

struct Search<'a> {
    arrows: &'a [Vec<usize>],
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        self.index[node] = Some(self.next);
        self.low[node] = self.next;
        self.next += 1;
        self.stack.push(node);
        self.on_stack[node] = true;
        for &to in &self.arrows[node] {
            match self.index[to] {
                None => {
                    self.visit(to);
                    self.low[node] = self.low[node].min(self.low[to]);
                }
                Some(index) if self.on_stack[to] => self.low[node] = self.low[node].min(index),
                Some(_) => {}
            }
        }
        if Some(self.low[node]) == self.index[node] {
            self.pop_component(node);
        }
    }

    fn pop_component(&mut self, root: usize) {
        let mut component = Vec::new();
        while let Some(node) = self.stack.pop() {
            self.on_stack[node] = false;
            component.push(node);
            if node == root {
                break;
            }
        }
        component.sort_unstable();
        self.found.push(component);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_circles_are_found_and_a_chain_is_none() {
        // 0 -> 1 -> 2 -> 0, 3 <-> 4, 5 -> 0
        let arrows = vec![vec![1], vec![2], vec![0], vec![4], vec![3], vec![0]];
        assert_eq!(circles(&arrows), [vec![0, 1, 2], vec![3, 4]]);
    }
}

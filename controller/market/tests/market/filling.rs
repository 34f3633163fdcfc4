//! Progressive filling: the harness that published vectors of fairness are tried on.

use selion_market::fair::{ONE, Tree, Twig};

/// Somebody who wants as many equal tasks as he can get, up to `most`.
pub struct User<const R: usize> {
    pub leaf: Twig,
    pub task: [u128; R],
    pub most: usize,
    pub tasks: usize,
}

pub struct Filling<const R: usize> {
    pub tree: Tree<R>,
    pub capacity: [u128; R],
    pub used: [u128; R],
    pub users: Vec<User<R>>,
}

impl<const R: usize> Filling<R> {
    pub fn new(capacity: [u128; R]) -> Self {
        Self { tree: Tree::new(capacity), capacity, used: [0; R], users: Vec::new() }
    }

    /// Users under the root, all of weight 1.
    pub fn flat(capacity: [u128; R], tasks: &[[u128; R]]) -> Self {
        let mut filling = Self::new(capacity);
        for task in tasks {
            filling.user(filling.tree.root(), 1, *task);
        }
        filling
    }

    pub fn user(&mut self, parent: Twig, weight: u32, task: [u128; R]) -> usize {
        let leaf = self.tree.add(parent, weight);
        self.users.push(User { leaf, task, most: usize::MAX, tasks: 0 });
        self.users.len() - 1
    }

    pub fn fits(&self, user: &User<R>) -> bool {
        let free = |at: usize| self.capacity[at] - self.used[at];
        user.tasks < user.most && (0..R).all(|at| user.task[at] <= free(at))
    }

    /// Gives the next task to whoever's turn it is, ties to the first; a user whose task does not fit is passed over.
    pub fn serve(&mut self) -> Option<usize> {
        let open: Vec<bool> = self.users.iter().map(|user| self.fits(user)).collect();
        for (user, open) in self.users.iter().zip(&open) {
            self.tree.ask(user.leaf, Some(&user.task).filter(|_| *open));
        }
        let mut saturated = [false; R];
        for (at, saturated) in saturated.iter_mut().enumerate() {
            *saturated = self.used[at] == self.capacity[at];
        }
        self.tree.saturate(saturated);
        self.tree.refresh();
        let first =
            (0..self.users.len()).filter(|at| open[*at]).min_by_key(|at| self.tree.path(self.users[*at].leaf))?;
        self.change(first, true);
        Some(first)
    }

    /// Serves until nothing fits; tells in which order.
    pub fn fill(&mut self) -> Vec<usize> {
        std::iter::from_fn(|| self.serve()).collect()
    }

    /// Takes a task from a user, or gives it one.
    pub fn change(&mut self, at: usize, more: bool) {
        let user = &mut self.users[at];
        if more {
            user.tasks += 1;
        } else {
            user.tasks -= 1;
        }
        for at in 0..R {
            self.used[at] = if more { self.used[at] + user.task[at] } else { self.used[at] - user.task[at] };
        }
        let held = user.task.map(|amount| amount * user.tasks as u128);
        self.tree.hold(user.leaf, &held);
    }

    pub fn tasks(&self) -> Vec<usize> {
        self.users.iter().map(|user| user.tasks).collect()
    }

    /// Dominant share of what a user holds, without weight.
    pub fn share(&self, at: usize) -> f64 {
        let user = &self.users[at];
        let parts = (0..R).filter(|at| self.capacity[*at] > 0);
        let part = |at: usize| user.task[at] as f64 * user.tasks as f64 / self.capacity[at] as f64;
        parts.map(part).fold(0.0, f64::max)
    }

    /// Dominant share of one task.
    pub fn quantum(&self, at: usize) -> f64 {
        let task = self.users[at].task;
        (0..R).map(|at| task[at] as f64 / self.capacity[at] as f64).fold(0.0, f64::max)
    }

    /// As the tree has it, in 1.
    pub fn told(&self, at: usize) -> f64 {
        self.tree.share(self.users[at].leaf) as f64 / ONE as f64
    }
}

//! The parameters of a decoder as one list.

use super::altup::StateProjections;
use super::experts::Experts;
use super::latent::Latent;
use super::tensors::{Packing, Stored};
use super::{KernelPacking, Weights};

/// A matrix, a stack or a table of a model.
pub enum Parameter<'a, P: Packing = KernelPacking> {
    Matrix(&'a P::Matrix),
    Stack(&'a P::Stack),
    Table(&'a P::Table),
}

impl<P: Packing> Weights<P> {
    /// All matrices, then all stacks, then the table, if there is one; vectors are not among them.
    pub fn parts(&self) -> impl Iterator<Item = Parameter<'_, P>> {
        let routers = self.experts().map(|experts| &experts.router);
        let experts = self.experts().flat_map(Experts::stacks);
        let latents = self.latents().flat_map(Latent::stacks);
        let states = self.states.iter().flat_map(StateProjections::stacks);
        let table = self.per_layer.as_ref().map(|inputs| &inputs.table);
        let matrices = self.matrices().chain(routers).map(Parameter::Matrix);
        let stacks = experts.chain(latents).chain(states).map(Parameter::Stack);
        matrices.chain(stacks).chain(table.map(Parameter::Table))
    }
}

impl<P: Packing> Weights<P>
where
    P::Matrix: Stored,
    P::Stack: Stored,
    P::Table: Stored,
{
    /// Bytes of the matrices: resident ones, or those of a reader. Norms and biases are a thousandth of that.
    pub fn bytes(&self) -> usize {
        self.parts().map(|part| part.stored().bytes()).sum()
    }
}

impl<P: Packing> Parameter<'_, P>
where
    P::Matrix: Stored,
    P::Stack: Stored,
    P::Table: Stored,
{
    /// Format and bytes.
    pub fn stored(&self) -> &dyn Stored {
        match self {
            Self::Matrix(matrix) => *matrix,
            Self::Stack(stack) => *stack,
            Self::Table(table) => *table,
        }
    }
}

//! Arithmetic of `compute_int` and `compute_float`: `a op b`.

use crate::value::{Kind, Value};
use crate::vars::Vars;

/// Finds a name's slot and kind.
pub(crate) type Find<'a> = &'a mut dyn FnMut(&str) -> Result<(usize, Kind), String>;

/// One operand.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Int(i64),
    Float(f64),
    /// The number in a variable.
    Var(usize),
    /// The length of a variable's value.
    Len(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

const OPERATORS: [(&str, Operator); 11] = [
    ("+", Operator::Add),
    ("-", Operator::Sub),
    ("*", Operator::Mul),
    ("/", Operator::Div),
    ("%", Operator::Rem),
    ("<", Operator::Less),
    ("<=", Operator::LessEqual),
    (">", Operator::Greater),
    (">=", Operator::GreaterEqual),
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
];

impl Operator {
    pub(crate) fn compares(self) -> bool {
        !matches!(
            self,
            Self::Add | Self::Sub | Self::Mul | Self::Div | Self::Rem
        )
    }
}

/// One operand, or two with an operator between, separated by spaces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr {
    pub(crate) left: Operand,
    pub(crate) right: Option<(Operator, Operand)>,
}

impl Expr {
    /// Parses an expression; `variable` finds a name's slot and kind.
    pub(crate) fn parse(text: &str, kind: Kind, variable: Find<'_>) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (left, right) = match words.as_slice() {
            [left] => (*left, None),
            [left, operator, right] => (*left, Some((*operator, *right))),
            _ => {
                return Err(format!(
                    "is `{text}`; it must be `a` or `a op b`, with spaces"
                ));
            }
        };
        let operator = right.map(|(word, _)| {
            let found = OPERATORS.iter().find(|(spelled, _)| *spelled == word);
            found.map(|(_, operator)| *operator).ok_or_else(|| {
                let known = OPERATORS.map(|(spelled, _)| spelled).join(" ");
                format!("has the operator `{word}`; known are {known}")
            })
        });
        let operator = operator.transpose()?;
        // Two floats may be compared to an integer.
        let floats = kind == Kind::Float || operator.is_some_and(Operator::compares);
        let mut operand = |word: &str| Operand::parse(word, floats, variable);
        let left = operand(left)?;
        let right = match (operator, right) {
            (Some(operator), Some((_, word))) => Some((operator, operand(word)?)),
            _ => None,
        };
        Ok(Self { left, right })
    }

    /// Saturating; division by 0 gives 0.
    pub(crate) fn int(&self, vars: &Vars) -> Result<i64, usize> {
        let Some((operator, right)) = &self.right else {
            return Ok(self.left.number(vars)?.whole());
        };
        let (left, right) = (self.left.number(vars)?, right.number(vars)?);
        if operator.compares() {
            return Ok(i64::from(compare_numbers(left, *operator, right)));
        }
        let (a, b) = (left.whole(), right.whole());
        Ok(match operator {
            Operator::Add => a.saturating_add(b),
            Operator::Sub => a.saturating_sub(b),
            Operator::Mul => a.saturating_mul(b),
            Operator::Div if b != 0 => a.saturating_div(b),
            Operator::Rem if b != 0 => a.checked_rem(b).unwrap_or(0),
            _ => 0,
        })
    }

    /// Division by 0 gives 0.
    pub(crate) fn float(&self, vars: &Vars) -> Result<f64, usize> {
        let Some((operator, right)) = &self.right else {
            return Ok(self.left.number(vars)?.float());
        };
        let (left, right) = (self.left.number(vars)?, right.number(vars)?);
        if operator.compares() {
            return Ok(f64::from(compare_numbers(left, *operator, right)));
        }
        let (a, b) = (left.float(), right.float());
        Ok(match operator {
            Operator::Add => a + b,
            Operator::Sub => a - b,
            Operator::Mul => a * b,
            Operator::Div if b != 0.0 => a / b,
            Operator::Rem if b != 0.0 => a % b,
            _ => 0.0,
        })
    }
}

#[derive(Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    /// Rounds towards 0 and saturates.
    fn whole(self) -> i64 {
        match self {
            Self::Int(value) => value,
            Self::Float(value) => value as i64,
        }
    }

    fn float(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }
}

fn compare_numbers(left: Number, operator: Operator, right: Number) -> bool {
    let order = match (left, right) {
        (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
        (a, b) => a.float().partial_cmp(&b.float()),
    };
    let Some(order) = order else {
        return operator == Operator::NotEqual; // not a number
    };
    match operator {
        Operator::Less => order.is_lt(),
        Operator::LessEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        Operator::GreaterEqual => order.is_ge(),
        Operator::Equal => order.is_eq(),
        _ => order.is_ne(),
    }
}

impl Operand {
    fn parse(word: &str, floats: bool, variable: Find<'_>) -> Result<Self, String> {
        if let Ok(value) = word.parse() {
            return Ok(Self::Int(value));
        }
        let begins = word.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '.');
        if begins {
            let value = word.parse::<f64>().ok().filter(|value| value.is_finite());
            let value = value.filter(|_| floats);
            return value
                .map(Self::Float)
                .ok_or_else(|| format!("has `{word}`, which is no number of this kind"));
        }
        if let Some(name) = word.strip_suffix(".len") {
            let (slot, kind) = variable(name)?;
            return match kind {
                Kind::Text | Kind::Array | Kind::Tokens | Kind::Tensor => Ok(Self::Len(slot)),
                kind => Err(format!("asks for the length of `{name}`, {}", kind.name())),
            };
        }
        let (slot, kind) = variable(word)?;
        match kind {
            Kind::Int | Kind::Bool => Ok(Self::Var(slot)),
            Kind::Float if floats => Ok(Self::Var(slot)),
            kind => Err(format!("uses `{word}`, {}", kind.name())),
        }
    }

    /// The number, or the slot of a variable that is not set.
    fn number(&self, vars: &Vars) -> Result<Number, usize> {
        match self {
            Self::Int(value) => Ok(Number::Int(*value)),
            Self::Float(value) => Ok(Number::Float(*value)),
            Self::Var(slot) => match vars.get(*slot) {
                Some(Value::Int(value)) => Ok(Number::Int(*value)),
                Some(Value::Float(value)) => Ok(Number::Float(*value)),
                Some(Value::Bool(value)) => Ok(Number::Int(i64::from(*value))),
                _ => Err(*slot),
            },
            Self::Len(slot) => {
                let len = vars.len(*slot).ok_or(*slot)?;
                Ok(Number::Int(i64::try_from(len).unwrap_or(i64::MAX)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;

    fn int(text: &str) -> Result<i64, String> {
        let values = [
            Value::Int(7),
            Value::tokens(vec![1, 2, 3]),
            Value::Float(2.5),
            Value::Bool(true),
        ];
        let account = Account::new(100);
        let mut vars = Vars::new(values.len());
        for (slot, value) in values.into_iter().enumerate() {
            vars.set(slot, value, &account).expect("room");
        }
        let mut find = |name: &str| {
            let slot = ["n", "ids", "x", "yes"].iter().position(|n| *n == name);
            let slot = slot.ok_or_else(|| format!("`{name}` is unknown"))?;
            Ok((slot, vars.get(slot).expect("set").kind()))
        };
        let expr = Expr::parse(text, Kind::Int, &mut find)?;
        Ok(expr.int(&vars).expect("all are set"))
    }

    #[test]
    fn integers() {
        let cases = [
            ("3", 3),
            ("n", 7),
            ("n + 1", 8),
            ("n - -1", 8),
            ("n / 0", 0),
            ("n % 0", 0),
            ("n % 4", 3),
            ("-9223372036854775808 / -1", i64::MAX),
            ("-9223372036854775808 % -1", 0),
            ("9223372036854775807 + 1", i64::MAX),
            ("9223372036854775807 * -2", i64::MIN),
            ("ids.len + 1", 4),
            ("n > 6", 1),
            ("n == ids.len", 0),
            ("x > 2", 1),
            ("x <= 2.25", 0),
            ("yes + 1", 2),
        ];
        for (text, wanted) in cases {
            assert_eq!(int(text), Ok(wanted), "{text}");
        }
    }

    #[test]
    fn invalid_expression_is_rejected() {
        let cases = [
            "",
            "n +",
            "n + 1 + 2",
            "n ** 2",
            "m",
            "x + 1",
            "n.len",
            "1.5 + 1",
            "ids",
            "n+1",
            "1e999",
        ];
        for text in cases {
            assert!(int(text).is_err(), "{text}");
        }
    }
}

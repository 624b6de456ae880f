//! Execution of the ops.

use super::machine::Next;
use super::{Run, Trouble};
use crate::account::ID_BYTES;
use crate::model::RequestTerms;
use crate::ops::{Call, CustomOp, Field, Role};
use crate::program::{Bound, Op, Param, PrefillMode, SampleParams, Slot, TokenizeMode};
use crate::value::{Kind, Logits, Value};
use engine::SamplingParams;
use serde_json::Value as Json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use stream::{End, FailCode};

/// Tokens that the engine may be ahead of a program outside of batched loops.
const AHEAD: u64 = 4;

impl Run {
    pub(super) fn op(&mut self, op: &Op, cx: &mut Context<'_>) -> Poll<Result<Next, Trouble>> {
        match op {
            Op::Sample {
                logits,
                output,
                logprob,
                params,
            } => self.execute_sample((*logits, *output, *logprob), params, cx),
            Op::StreamRead {
                channel,
                output,
                wait,
            } => self.read(*channel, *output, wait, cx),
            Op::Forward { .. } => self.embed(op, cx),
            op => Poll::Ready(self.at_once(op).map(|()| Next::On)),
        }
    }

    fn at_once(&mut self, op: &Op) -> Result<(), Trouble> {
        match op {
            Op::Prefill {
                model,
                input,
                output_pos,
                mode,
                logits,
            } => self.execute_prefill(*model, *input, *output_pos, *mode, *logits),
            Op::GraphForward {
                model,
                token,
                position,
                logits,
            } => self.execute_forward(*model, *token, position.as_ref(), *logits),
            Op::Tokenize {
                model,
                input,
                output,
                base,
                mode,
            } => self.execute_tokenize(*model, (*input, *output), *base, *mode),
            Op::FormatChat { output, .. } => {
                let text = self.format_chat(op)?;
                self.set(*output, Value::text(&text))
            }
            Op::StreamInit {
                output,
                channel,
                capacity,
            } => self.open_channel(*output, *channel, capacity),
            Op::GetItem {
                input,
                index,
                output,
                kind,
            } => self.get_item((*input, *output), index, *kind),
            Op::AppendItem { input, output } => self.append_item(*input, *output),
            Op::StreamWrite { channel, input } => self.write(*channel, *input),
            Op::Custom { op, fields } => self.execute_custom(op, fields),
            op => self.execute_plain(op),
        }
    }

    fn execute_plain(&mut self, op: &Op) -> Result<(), Trouble> {
        match op {
            Op::Detokenize {
                model,
                input,
                output,
                all,
            } => {
                let ids = self.tokens_var(*input)?;
                let text = self.models[*model].text(&ids, *all, self.account.most());
                let text = text.ok_or_else(|| self.too_long())?;
                self.set(*output, Value::text(&text))?;
            }
            Op::ComputeInt { output, expr } => {
                let value = expr
                    .int(&self.state.vars)
                    .map_err(|slot| self.unset_variable(slot))?;
                self.set(*output, Value::Int(value))?;
            }
            Op::ComputeFloat { output, expr } => {
                let value = expr
                    .float(&self.state.vars)
                    .map_err(|slot| self.unset_variable(slot))?;
                self.set(*output, Value::Float(value))?;
            }
            Op::CheckEos {
                model,
                input,
                output,
                eos,
            } => {
                let id = self.id_var(*input)?;
                let eos = eos.as_ref().map(|eos| self.int(eos)).transpose()?;
                let eos = eos.and_then(|eos| u32::try_from(eos).ok());
                let ends = self.is_eos(*model, id, eos);
                self.set(*output, Value::Bool(ends))?;
            }
            Op::AppendToken { input, output } => {
                let id = self.id_var(*input)?;
                self.state.vars.append(*output, id, &self.account)?;
            }
            Op::CaptureBegin => self.captures = self.window.is_none(),
            Op::Commit { ends, wait } => {
                self.captures &= !ends;
                if self.flag(wait)? {
                    self.emit_held();
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The error of a text that exceeds the bound.
    pub(super) fn too_long(&self) -> Trouble {
        let most = self.account.most();
        Trouble::program(format!(
            "gives a text of more than {most} bytes (value_bytes_max)"
        ))
    }

    fn unset_variable(&self, slot: Slot) -> Trouble {
        let name = &self.program.variables[slot].name;
        Trouble::program(format!("`{name}` is not set here"))
    }

    fn execute_prefill(
        &mut self,
        model: usize,
        input: Slot,
        output_pos: Option<Slot>,
        mode: PrefillMode,
        logits: Slot,
    ) -> Result<(), Trouble> {
        let ids = self.tokens_var(input)?;
        self.expect_vocabulary(model, &ids)?;
        let (session, account) = (&mut self.state.sessions[model], &self.account);
        let before = match mode {
            PrefillMode::Full => 0,
            PrefillMode::Delta | PrefillMode::FullAppendOnly => session.position(),
        };
        match mode {
            PrefillMode::Delta => session.give(&ids, account)?,
            PrefillMode::Full => session.replace(&ids, account)?,
            PrefillMode::FullAppendOnly => match ids.strip_prefix(session.ids()) {
                Some(rest) => session.give(rest, account)?,
                None => {
                    let what = "the input does not begin with what the session has";
                    return Err(Trouble::program(what));
                }
            },
        }
        let (position, most) = (session.position(), self.models[model].handle.context_max);
        self.prefilled += (position - before) as u64;
        if position >= most {
            let what = format!("the session has {position} tokens; fewer than {most}");
            return Err(Trouble {
                end: End::Length,
                what: Some(what),
            });
        }
        if let Some(slot) = output_pos {
            self.set(slot, Value::Int(position as i64))?;
        }
        self.set_logits(model, logits)
    }

    fn execute_forward(
        &mut self,
        model: usize,
        token: Slot,
        position: Option<&Param<i64>>,
        logits: Slot,
    ) -> Result<(), Trouble> {
        let id = self.id_var(token)?;
        self.expect_vocabulary(model, &[id])?;
        let position = position.map(|position| self.int(position)).transpose()?;
        let session = &mut self.state.sessions[model];
        if let Some(wanted) = position {
            let reached = session.position();
            let at = usize::try_from(wanted).ok().filter(|at| *at <= reached);
            let Some(at) = at else {
                let what = format!("position is {wanted}; the session is at {reached}");
                return Err(Trouble::program(what));
            };
            session.cut(at, &self.account)?;
        }
        let (reached, most) = (session.position(), self.models[model].handle.context_max);
        if reached >= most {
            let what = format!("the session has {reached} tokens; at most {most}");
            return Err(Trouble {
                end: End::Length,
                what: Some(what),
            });
        }
        session.forward(id, &self.account)?;
        self.set_logits(model, logits)
    }

    fn set_logits(&mut self, session: usize, slot: Slot) -> Result<(), Trouble> {
        let position = self.state.sessions[session].position();
        self.set(slot, Value::Logits(Logits { session, position }))
    }

    pub(super) fn expect_vocabulary(&self, model: usize, ids: &[u32]) -> Result<(), Trouble> {
        let vocab = self.models[model].handle.engine.dims().vocab;
        match ids.iter().find(|id| **id as usize >= vocab) {
            None => Ok(()),
            Some(id) => Err(Trouble::program(format!(
                "names token {id}; the vocabulary has {vocab}"
            ))),
        }
    }

    fn execute_sample(
        &mut self,
        (logits, output, logprob): (Slot, Slot, Option<Slot>),
        params: &SampleParams,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Next, Trouble>> {
        let prepared = self.prepare_sample(logits, params, logprob.is_some());
        let (at, sampling) = match prepared {
            Ok(prepared) => prepared,
            Err(why) => return Poll::Ready(Err(why)),
        };
        let ahead = self.window.as_ref().map_or(AHEAD, |w| w.in_flight().max(2));
        let terms = self.request_terms(ahead);
        let session = &self.state.sessions[at];
        let following = &mut self.following[at];
        let drawn = ready!(following.next(cx, session, &self.models[at], &sampling, terms));
        Poll::Ready(drawn.and_then(|token| {
            self.set(output, Value::Int(i64::from(token.id)))?;
            if let Some(slot) = logprob {
                self.set(slot, Value::Float(f64::from(token.logprob)))?;
            }
            Ok(Next::On)
        }))
    }

    /// Terms of requests with this credit window.
    pub(super) fn request_terms(&self, ahead: u64) -> RequestTerms {
        RequestTerms {
            terms: self.plan.terms,
            deadline: self.plan.deadline,
            ahead,
            tokens_max: self.plan.limits.tokens_max + ahead as usize,
        }
    }

    fn prepare_sample(
        &self,
        logits: Slot,
        params: &SampleParams,
        logprobs: bool,
    ) -> Result<(usize, SamplingParams), Trouble> {
        let Value::Logits(logits) = self.value(logits)? else {
            return Err(Trouble::program("there are no logits"));
        };
        let reached = self.state.sessions[logits.session].position();
        if logits.position != reached {
            let what = format!(
                "the logits are of position {}; the session is at {reached}",
                logits.position
            );
            return Err(Trouble::program(what));
        }
        let count = |param: &Param<i64>, name: &str| {
            let value = self.int(param)?;
            u32::try_from(value).map_err(|_| Trouble::program(format!("{name} is {value}")))
        };
        let number = |param: &Param<f64>| self.float(param).map(|value| value as f32);
        let sampling = SamplingParams {
            temperature: number(&params.temperature)?,
            top_k: count(&params.top_k, "top_k")?,
            top_p: number(&params.top_p)?,
            min_p: number(&params.min_p)?,
            repetition_penalty: number(&params.repeat_penalty)?,
            penalty_window: count(&params.repeat_last_n, "repeat_last_n")?,
            presence_penalty: number(&params.presence_penalty)?,
            frequency_penalty: number(&params.frequency_penalty)?,
            seed: self.int(&params.seed)? as u64,
            logprobs,
            ..SamplingParams::default()
        };
        Ok((logits.session, sampling))
    }

    fn execute_tokenize(
        &mut self,
        model: usize,
        (input, output): (Slot, Slot),
        base: Option<Slot>,
        mode: TokenizeMode,
    ) -> Result<(), Trouble> {
        let text = self.text_var(input)?;
        let base = base.map(|slot| self.tokens_var(slot)).transpose()?;
        let begun = base.as_ref().is_some_and(|base| !base.is_empty());
        let tokenizer = &self.models[model].handle.tokenizer;
        let ids = match mode {
            TokenizeMode::Prompt if !begun => tokenizer.encode_prompt(&text, false),
            TokenizeMode::Prompt | TokenizeMode::Continue => tokenizer.encode(&text, false),
            TokenizeMode::Chat if !begun => tokenizer.encode_rendered(&text),
            TokenizeMode::Chat | TokenizeMode::Delta => {
                tokenizer.encode_rendered_continuation(&text)
            }
        };
        let ids = ids.map_err(|why| Trouble::program(why.0))?;
        let all = base.as_ref().map_or(0, |base| base.len()) + ids.len();
        self.account.expect_room(all * ID_BYTES)?;
        let ids = match base {
            Some(base) => base.iter().copied().chain(ids).collect(),
            None => ids,
        };
        self.set(output, Value::tokens(ids))
    }

    /// Whether the token is an end-of-sequence token.
    pub(super) fn is_eos(&self, model: usize, id: u32, eos: Option<u32>) -> bool {
        eos.map_or_else(
            || self.models[model].handle.eos.contains(&id),
            |eos| eos == id,
        )
    }

    fn execute_custom(
        &mut self,
        op: &Arc<dyn CustomOp>,
        bound: &[(Field, Bound)],
    ) -> Result<(), Trouble> {
        let mut given = Vec::with_capacity(bound.len());
        for (field, bound) in bound.iter().filter(|(f, _)| f.role != Role::Output) {
            let value = match bound {
                Bound::Literal(value) => value.clone(),
                Bound::Var(slot) => self.value(*slot)?.clone(),
            };
            given.push((field.name, value));
        }
        let mut call = Call {
            given: &given,
            fields: op.fields(),
            set: Vec::new(),
        };
        let done = catch_unwind(AssertUnwindSafe(|| op.run(&mut call)));
        done.map_err(|_| Trouble::ended(End::Failed(FailCode::Panic)))?
            .map_err(Trouble::program)?;
        if let Some(fault) = call.fault() {
            return Err(Trouble::program(fault));
        }
        for (name, value) in call.set {
            let slot = bound.iter().find_map(|(field, bound)| match bound {
                Bound::Var(slot) if field.name == name => Some(*slot),
                _ => None,
            });
            if let Some(slot) = slot {
                self.set(slot, value)?;
            }
        }
        Ok(())
    }
}

impl Run {
    /// The result of `get_item`.
    pub(super) fn get_item(
        &mut self,
        (input, output): (Slot, Slot),
        index: &Param<i64>,
        kind: Kind,
    ) -> Result<(), Trouble> {
        let index = self.int(index)?;
        let Value::Array(items) = self.value(input)? else {
            return Err(Trouble::program("there is no list"));
        };
        let item = usize::try_from(index).ok().and_then(|at| items.get(at));
        let item = item.ok_or_else(|| {
            Trouble::program(format!("index is {index}; the list has {}", items.len()))
        })?;
        let value = Value::from_json(kind, item);
        let value = value
            .ok_or_else(|| Trouble::program(format!("item {index} is not {}", kind.name())))?;
        self.set(output, value)
    }

    /// Executes `append_item`.
    pub(super) fn append_item(&mut self, input: Slot, output: Slot) -> Result<(), Trouble> {
        let item = self.value(input)?.to_json();
        if self.state.vars.get(output).is_none() {
            self.set(output, Value::Array(Arc::default()))?;
        }
        self.state.vars.append_item(output, item, &self.account)
    }
}

impl Value {
    /// Converts JSON to a value of this kind, if possible. An integer is a float too.
    pub(crate) fn from_json(kind: Kind, json: &Json) -> Option<Self> {
        let list = || json.as_array();
        match kind {
            Kind::Int => json.as_i64().map(Self::Int),
            Kind::Float => json.as_f64().map(Self::Float),
            Kind::Bool => json.as_bool().map(Self::Bool),
            Kind::Text => json.as_str().map(Self::text),
            Kind::Array => list().map(|items| Self::Array(Arc::new(items.clone()))),
            Kind::Tokens => {
                let ids = list()?.iter();
                let ids = ids.map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok()));
                ids.collect::<Option<Vec<u32>>>().map(Self::tokens)
            }
            Kind::Tensor | Kind::Logits | Kind::Channel => None,
        }
    }
}

//! Sessions: a transcript with the request that continues it.

use crate::account::{Account, Charged, ID_BYTES};
use crate::model::{Model, RequestTerms, SubmittedRequest};
use crate::trouble::Trouble;
use engine::{SamplingParams, Token};
use std::task::{Context, Poll};
use stream::{End, Read};
use text::Message;

/// A transcript with one model. The running request is kept apart: a
/// copy of a session is cheap, and a point to roll back to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Session {
    ids: Charged<Vec<u32>>,
    /// Index of the first answer token: ids before were given.
    answer_from: usize,
    /// The conversation that the last `format_chat` rendered.
    pub(crate) said: Option<Charged<Vec<Message>>>,
}

impl Session {
    /// All ids, in order.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Number of ids.
    pub(crate) fn position(&self) -> usize {
        self.ids.len()
    }

    /// Ids forwarded since the last prefill.
    pub(crate) fn answer(&self) -> &[u32] {
        &self.ids[self.answer_from..]
    }

    /// Appends given ids.
    pub(crate) fn give(&mut self, ids: &[u32], account: &Account) -> Result<(), Trouble> {
        self.ids.append(ids, account)?;
        self.answer_from = self.ids.len();
        Ok(())
    }

    /// Replaces all ids by given ones.
    pub(crate) fn replace(&mut self, ids: &[u32], account: &Account) -> Result<(), Trouble> {
        self.ids = Charged::new(ids.to_vec(), ids.len() * ID_BYTES, account)?;
        self.answer_from = ids.len();
        Ok(())
    }

    /// Appends a token of the answer.
    pub(crate) fn forward(&mut self, id: u32, account: &Account) -> Result<(), Trouble> {
        self.ids.append(&[id], account)
    }

    /// Truncates to this position, at most the present one.
    pub(crate) fn cut(&mut self, position: usize, account: &Account) -> Result<(), Trouble> {
        if position < self.ids.len() {
            let kept = self.ids[..position].to_vec();
            self.ids = Charged::new(kept, position * ID_BYTES, account)?;
            self.answer_from = self.answer_from.min(position);
        }
        Ok(())
    }

    /// Charges the session to this account, without a check.
    pub(crate) fn owe(&mut self, account: &Account) {
        self.ids.owe(account);
        self.said.iter_mut().for_each(|said| said.owe(account));
    }

    /// Bytes of the conversation rendered last.
    pub(crate) fn said_bytes(&self) -> usize {
        self.said.as_ref().map_or(0, Charged::bytes)
    }
}

/// The running request of a session, while the session follows it.
#[derive(Default)]
pub(crate) struct Following {
    followed: Option<Followed>,
    /// Tokens taken from this request and earlier ones.
    drawn: u64,
}

struct Followed {
    request: SubmittedRequest,
    /// With the charge: the session may have dropped these ids.
    prompt: Charged<Vec<u32>>,
    answer_from: usize,
    sampling: SamplingParams,
    /// Tokens received so far.
    drawn: Vec<Token>,
}

impl Following {
    /// The next token of the session's transcript: a function of the transcript, of the start of the
    /// answer, and of `sampling`, for any earlier requests.
    pub(crate) fn next(
        &mut self,
        cx: &mut Context<'_>,
        session: &Session,
        model: &Model,
        sampling: &SamplingParams,
        terms: RequestTerms,
    ) -> Poll<Result<Token, Trouble>> {
        if session.ids.is_empty() {
            let why = "nothing was prefilled: there is nothing to go on from";
            return Poll::Ready(Err(Trouble::program(why)));
        }
        let leads = self.followed.as_ref();
        if !leads.is_some_and(|f| f.is_followed_by(session, sampling)) {
            self.followed = None; // first: frees its slot for the next request
            match Followed::begin(session, model, sampling, terms) {
                Ok(begun) => self.followed = Some(begun),
                Err(why) => return Poll::Ready(Err(why)),
            }
        }
        let Some(followed) = &mut self.followed else {
            return Poll::Pending;
        };
        let before = followed.drawn.len();
        let found = followed.token_at(cx, session.position());
        self.drawn += (followed.drawn.len() - before) as u64;
        if let Poll::Ready(Err(_)) = found {
            self.followed = None;
        }
        found
    }

    /// Drops the request.
    pub(crate) fn leave(&mut self) {
        self.followed = None;
    }

    /// Tokens taken from this request and earlier ones.
    pub(crate) fn drawn(&self) -> u64 {
        self.drawn
    }
}

impl Followed {
    fn begin(
        session: &Session,
        model: &Model,
        sampling: &SamplingParams,
        terms: RequestTerms,
    ) -> Result<Self, Trouble> {
        let answered = SamplingParams {
            answered: u32::try_from(session.answer().len()).unwrap_or(u32::MAX),
            ignore_eos: true,
            ..sampling.clone()
        };
        Ok(Self {
            request: model.request_continuation(&session.ids, answered, terms)?,
            prompt: session.ids.clone(),
            answer_from: session.answer_from,
            sampling: sampling.clone(),
            drawn: Vec::new(),
        })
    }

    /// Whether the session is at the request's prompt, or at a continuation that the request gave.
    fn is_followed_by(&self, session: &Session, sampling: &SamplingParams) -> bool {
        let Some(rest) = session.ids.strip_prefix(self.prompt.as_slice()) else {
            return false;
        };
        self.answer_from == session.answer_from
            && self.sampling == *sampling
            && rest.len() <= self.drawn.len()
            && rest
                .iter()
                .zip(&self.drawn)
                .all(|(id, drawn)| *id == drawn.id)
    }

    fn token_at(&mut self, cx: &mut Context<'_>, position: usize) -> Poll<Result<Token, Trouble>> {
        let wanted = position - self.prompt.len();
        let reader = &mut self.request.reader;
        let mut buffer = [Token::default()];
        while self.drawn.len() <= wanted {
            match reader.poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Read::Items(_)) => {
                    reader.accept(reader.cursor());
                    self.drawn.push(buffer[0]);
                }
                Poll::Ready(Read::Ended(end)) => return Poll::Ready(Err(Trouble::ended(end))),
                Poll::Ready(Read::Empty) => return Poll::Ready(Err(Trouble::ended(End::Lost))),
            }
        }
        Poll::Ready(Ok(self.drawn[wanted]))
    }
}

//! Readers that arrive at any gateway, and takeovers.

use super::gateway::ClaimJob;
use super::*;
use journal::Integrity;

impl World {
    /// A reader arrives at a random gateway.
    pub(super) fn visit(&mut self) {
        if !self.random.chance(10) {
            return;
        }
        let streams = self.store.streams();
        if streams.is_empty() {
            return;
        }
        let id = streams[self.random.below(streams.len() as u64) as usize];
        let at = self.random.below(self.gateways.len() as u64) as usize;
        let now = self.now;
        let gateway = &mut self.gateways[at];
        let can_claim = gateway.runs(now) && gateway.is_connected() && !gateway.owns(id);
        if can_claim && !gateway.jobs.contains_key(&id) {
            let timeout_at = now + Duration::from_secs(2);
            let stage = ClaimStage::Reading;
            gateway.jobs.insert(id, ClaimJob { stage, timeout_at });
            let from = gateway.instance;
            self.send(|| Packet::Request(from, id, Request::Read));
        }
    }

    /// Whether the gateway takes an instance for dead.
    fn is_gone(&self, at: usize, owner: InstanceId) -> bool {
        let gateway = &self.gateways[at];
        if owner == gateway.instance {
            // A claim of this gateway that was stored after it had been given up.
            return true;
        }
        let clock = gateway.clock(self.now);
        let Some(own) = gateway.heard.get(&gateway.instance) else {
            return false;
        };
        match gateway.heard.get(&owner) {
            Some(heard) => clock.saturating_duration_since(*heard) > GONE,
            // Never heard: gone if this gateway has listened for long enough.
            None => *own > clock - STEP * 2 && self.now - self.start > GONE * 2,
        }
    }

    pub(super) fn take_messages(&mut self, at: usize, id: u128, messages: &[SubjectMessage]) {
        let gateway = &self.gateways[at];
        let Some(ClaimJob {
            stage: ClaimStage::Reading,
            ..
        }) = gateway.jobs.get(&id)
        else {
            return;
        };
        let instance = gateway.instance;
        // The beginning is missing while a wiped store is filled.
        let Ok(Some(plan)) = ClaimPlan::new(id, messages, instance, 1 << 20) else {
            return self.end_job(at, id);
        };
        if !self.is_gone(at, plan.last.head.instance) {
            return self.end_job(at, id);
        }
        assert_eq!(plan.stream.integrity, Integrity::Intact, "stream {id}");
        let (expected, payload) = (plan.last.sequence, plan.payload.clone());
        let job = ClaimJob {
            stage: ClaimStage::Publishing(Box::new(plan)),
            timeout_at: self.now + Duration::from_secs(5),
        };
        self.gateways[at].jobs.insert(id, job);
        self.send(|| Packet::Request(instance, id, Request::Claim(expected, payload.clone())));
    }

    pub(super) fn take_claimed(&mut self, at: usize, id: u128, outcome: PublishOutcome) {
        let Some(job) = self.gateways[at].jobs.remove(&id) else {
            return;
        };
        match (job.stage, outcome) {
            (ClaimStage::Publishing(plan), PublishOutcome::Stored(sequence)) => {
                self.adopt(at, id, &plan, sequence);
            }
            (ClaimStage::Publishing(plan), _) => self.check_claim(at, id, plan),
            (stage, _) => {
                let timeout_at = job.timeout_at;
                let job = ClaimJob { stage, timeout_at };
                self.gateways[at].jobs.insert(id, job);
            }
        }
    }

    fn check_claim(&mut self, at: usize, id: u128, plan: Box<ClaimPlan>) {
        let job = ClaimJob {
            stage: ClaimStage::Checking(plan),
            timeout_at: self.now + Duration::from_secs(1),
        };
        self.gateways[at].jobs.insert(id, job);
        let from = self.gateways[at].instance;
        self.send(|| Packet::Request(from, id, Request::CheckClaim));
    }

    pub(super) fn take_checked_claim(&mut self, at: usize, id: u128, last: Option<LastMessage>) {
        let Some(job) = self.gateways[at].jobs.remove(&id) else {
            return;
        };
        if let (ClaimStage::Checking(plan), Some(last)) = (job.stage, last)
            && plan.is_claim(last.head)
        {
            self.adopt(at, id, &plan, last.sequence);
        }
    }

    fn end_job(&mut self, at: usize, id: u128) {
        self.gateways[at].jobs.remove(&id);
    }

    fn adopt(&mut self, at: usize, id: u128, plan: &ClaimPlan, sequence: u64) {
        let now = self.now;
        self.takeovers += 1;
        let tokens = plan.stream.choices.first().map(|choice| &choice.ids[..]);
        let known = self.acknowledged.get(&id).map_or(&[][..], |t| &t[..]);
        let tokens = tokens.unwrap_or(&[]);
        assert!(
            tokens.starts_with(known),
            "stream {id}: {} tokens of {} acknowledged ones",
            tokens.len(),
            known.len()
        );
        self.gateways[at].adopt(id, plan, sequence, now);
    }

    /// Requests of takeovers without an answer.
    pub(super) fn drive_claims(&mut self, at: usize) {
        let now = self.now;
        let jobs = self.gateways[at].jobs.iter();
        let late = jobs.filter(|(_, job)| job.timeout_at <= now);
        let late: Vec<_> = late.map(|(id, _)| *id).collect();
        for id in late {
            let Some(job) = self.gateways[at].jobs.remove(&id) else {
                continue;
            };
            match job.stage {
                ClaimStage::Reading => {}
                ClaimStage::Publishing(plan) | ClaimStage::Checking(plan) => {
                    self.check_claim(at, id, plan);
                }
            }
        }
    }

    /// Each stream of the store has one owner, whose text the store has.
    pub(super) fn check_end(&self, seed: u64) {
        for id in self.store.streams() {
            let owners: Vec<_> = self.gateways.iter().filter(|g| g.owns(id)).collect();
            let instances: Vec<_> = owners.iter().map(|g| g.instance).collect();
            assert_eq!(owners.len(), 1, "seed {seed}, stream {id}: {instances:?}");
            let stream = &owners[0].streams[&id];
            let messages = self.store.read(id);
            let plan = ClaimPlan::new(id, &messages, InstanceId(0), 1 << 20);
            let plan = plan.unwrap().unwrap();
            assert_eq!(plan.last.head.instance, owners[0].instance);
            assert_eq!(plan.stream.integrity, Integrity::Intact);
            let tokens = &plan.stream.choices[0].ids;
            assert_eq!(tokens, &stream.tokens, "seed {seed}, stream {id}");
            if !self.is_drawn {
                let text = (0..tokens.len() as u64).map(|index| token(id, index, 0));
                assert!(text.eq(tokens.iter().copied()), "seed {seed}, stream {id}");
            }
        }
    }
}

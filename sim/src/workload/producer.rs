//! XADD alone, in pipelines, and in transactions. What is not answered is added again under another token, as an
//! application without idempotent adds would do.

use rand::Rng;
use weir_tests::{
    client::{Fate, is_passing},
    history::What,
};

use super::{Worker, add_command, pause_after, words};

pub(super) async fn run(mut me: Worker) {
    while me.again().await {
        let key = me.pick_key();
        let draw = me.client.rng().random_range(0..20u32);
        match draw {
            0..3 => me.pipeline(key).await,
            3..5 => me.transact(key).await,
            _ => {
                let added = me.add(key).await;
                pause_after(added.map(|(_, outcome)| outcome).as_ref()).await;
            }
        }
    }
}

impl Worker {
    async fn pipeline(&mut self, key: usize) {
        let name = self.stage.keys[key].clone();
        let count = self.client.rng().random_range(2..=6);
        let tokens: Vec<u64> = (0..count).map(|_| self.stage.book.token()).collect();
        let commands: Vec<Vec<String>> = tokens.iter().map(|token| add_command(&name, *token)).collect();
        let started = self.stage.book.now();
        let mut fates = Vec::new();
        self.client.pipeline(&name, &commands, |number, fate| fates.push((number, fate))).await;
        for (number, fate) in fates {
            self.write_down(key, started, What::Add { token: tokens[number] }, &commands[number], fate);
        }
    }

    async fn transact(&mut self, key: usize) {
        let name = self.stage.keys[key].clone();
        let count = self.client.rng().random_range(2..=4);
        let tokens: Vec<u64> = (0..count).map(|_| self.stage.book.token()).collect();
        let mut commands = vec![words(&["MULTI"])];
        commands.extend(tokens.iter().map(|token| add_command(&name, *token)));
        commands.push(words(&["EXEC"]));
        let started = self.stage.book.now();
        let mut passing = None;
        let last = self
            .client
            .pipeline(&name, &commands, |_, fate| {
                if let Fate::Refused(error) = fate
                    && is_passing(&error)
                {
                    passing.get_or_insert(error);
                }
            })
            .await;
        let Some(mut end) = last else { return };
        if let (Fate::Refused(error), Some(why)) = (&end, passing)
            && error.starts_with("EXECABORT")
        {
            end = Fate::Refused(why);
        }
        let shown = words(&["MULTI", &name, &format!("{tokens:?}"), "EXEC"]);
        let outcome = self.write_down(key, started, What::AddAll { tokens }, &shown, end);
        pause_after(outcome.as_ref()).await;
    }
}

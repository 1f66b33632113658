//! The connections that events may be about, by all the names that events have for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use inet_rdma_verbs::async_event::Concerns;

use crate::fate::Fate;

/// By which names events call a connection: addresses, which differ between all objects that are alive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) id: usize,
    pub(crate) device: usize,
    pub(crate) queue_pair: usize,
    pub(crate) completion_queues: [usize; 2],
}

/// Each connection leaves before the objects that it is named after are destroyed. `I` is what keeps a device open.
pub(crate) struct Known<I> {
    /// By the id.
    connections: HashMap<usize, (Arc<Fate>, I)>,
    /// The ids of queue pairs and completion queues.
    ids: HashMap<usize, usize>,
    /// The ids on each device that is in use.
    devices: HashMap<usize, HashSet<usize>>,
}

impl<I> Default for Known<I> {
    fn default() -> Self {
        Known {
            connections: HashMap::new(),
            ids: HashMap::new(),
            devices: HashMap::new(),
        }
    }
}

impl<I> Known<I> {
    /// True: it is the first on its device.
    pub(crate) fn enter(&mut self, names: Names, fate: Arc<Fate>, device: I) -> bool {
        self.connections.insert(names.id, (fate, device));
        self.ids.insert(names.queue_pair, names.id);
        self.ids.extend(names.completion_queues.map(|queue| (queue, names.id)));
        let on_device = self.devices.entry(names.device).or_default();
        on_device.insert(names.id);
        on_device.len() == 1
    }

    /// True: it was the last on its device.
    pub(crate) fn leave(&mut self, names: Names) -> bool {
        self.connections.remove(&names.id);
        self.ids.remove(&names.queue_pair);
        for queue in names.completion_queues {
            self.ids.remove(&queue);
        }
        let Some(on_device) = self.devices.get_mut(&names.device) else {
            return false;
        };
        on_device.remove(&names.id);
        let is_last = on_device.is_empty();
        if is_last {
            self.devices.remove(&names.device);
        }
        is_last
    }

    /// The connection of an id.
    pub(crate) fn connection(&self, id: usize) -> Option<&Arc<Fate>> {
        self.connections.get(&id).map(|(fate, _)| fate)
    }

    /// What keeps this device open; None: no connection uses it.
    pub(crate) fn device(&self, device: usize) -> Option<&I> {
        let id = self.devices.get(&device)?.iter().next()?;
        self.connections.get(id).map(|(_, device)| device)
    }

    /// All connections.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Fate>> {
        self.connections.values().map(|(fate, _)| fate)
    }

    /// The connections that an asynchronous event of this device is about.
    pub(crate) fn concerned(&self, device: usize, concerns: Concerns) -> Vec<Arc<Fate>> {
        let found = |id: &usize| self.connection(*id).cloned();
        match concerns {
            Concerns::QueuePair(object) | Concerns::CompletionQueue(object) => {
                self.ids.get(&object).and_then(found).into_iter().collect()
            }
            Concerns::Device => {
                let on_device = self.devices.get(&device).into_iter().flatten();
                on_device.filter_map(found).collect()
            }
            Concerns::News => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [Names; 3] = [names(1, 10), names(1, 20), names(2, 30)];

    const fn names(device: usize, first: usize) -> Names {
        Names {
            id: first,
            device,
            queue_pair: first + 1,
            completion_queues: [first + 2, first + 3],
        }
    }

    /// Three connections, the first two on one device.
    fn three() -> (Known<&'static str>, [Arc<Fate>; 3]) {
        let mut known = Known::default();
        let fates = NAMES.map(|names| Arc::new(Fate::of(names.id, None)));
        let is_first = std::array::from_fn(|index| known.enter(NAMES[index], Arc::clone(&fates[index]), "open"));
        assert_eq!(is_first, [true, false, true]);
        (known, fates)
    }

    #[test]
    fn an_event_reaches_the_connections_that_it_concerns() {
        let (known, fates) = three();
        let concerned = |concerns| {
            let concerned = known.concerned(1, concerns);
            fates
                .each_ref()
                .map(|fate| concerned.iter().any(|one| Arc::ptr_eq(one, fate)))
        };
        assert_eq!(concerned(Concerns::QueuePair(21)), [false, true, false]);
        assert_eq!(concerned(Concerns::CompletionQueue(12)), [true, false, false]);
        assert_eq!(concerned(Concerns::CompletionQueue(13)), [true, false, false]);
        assert_eq!(concerned(Concerns::Device), [true, true, false]);
        assert_eq!(concerned(Concerns::News), [false; 3]);
        assert!(known.connection(30).is_some_and(|fate| Arc::ptr_eq(fate, &fates[2])));
        assert!(known.connection(31).is_none(), "a queue pair is no id");
    }

    #[test]
    fn a_connection_that_has_left_is_found_under_none_of_its_names() {
        let (mut known, fates) = three();
        assert!(!known.leave(NAMES[0]), "another one is on its device");
        assert!(known.connection(10).is_none());
        for concerns in [11]
            .map(Concerns::QueuePair)
            .into_iter()
            .chain([12, 13].map(Concerns::CompletionQueue))
        {
            assert!(known.concerned(1, concerns).is_empty(), "{concerns:?}");
        }
        assert_eq!(known.concerned(1, Concerns::Device).len(), 1);
        assert_eq!(known.device(1), Some(&"open"));
        assert!(known.leave(NAMES[1]));
        assert_eq!(known.device(1), None);
        assert!(known.all().all(|fate| Arc::ptr_eq(fate, &fates[2])));
    }
}

//! The event registry: the connections that events may concern, by all names that events use for them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use inet_rdma_verbs::async_event::Concerns;

use crate::connection_end::ConnectionEnd;

/// The names that events use for a connection: addresses of objects, which differ while the objects live.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names {
    pub(crate) id: usize,
    pub(crate) device: usize,
    pub(crate) queue_pair: usize,
    pub(crate) completion_queues: [usize; 2],
}

/// The connections. Each is removed before the objects that name it are destroyed. `I` keeps a device open.
pub(crate) struct Registry<I> {
    /// The connections by their ids.
    connections: HashMap<usize, Entry<I>>,
    /// The ids of queue pairs and completion queues.
    ids: HashMap<usize, usize>,
    /// The ids on each device.
    devices: HashMap<usize, HashSet<usize>>,
}

struct Entry<I> {
    end: Arc<ConnectionEnd>,
    keeps_open: I,
}

impl<I> Default for Registry<I> {
    fn default() -> Self {
        Registry {
            connections: HashMap::new(),
            ids: HashMap::new(),
            devices: HashMap::new(),
        }
    }
}

impl<I> Registry<I> {
    /// Adds a connection. True: it is the first on its device.
    pub(crate) fn insert(&mut self, names: Names, end: Arc<ConnectionEnd>, device: I) -> bool {
        let entry = Entry {
            end,
            keeps_open: device,
        };
        self.connections.insert(names.id, entry);
        self.ids.insert(names.queue_pair, names.id);
        self.ids.extend(names.completion_queues.map(|queue| (queue, names.id)));
        let on_device = self.devices.entry(names.device).or_default();
        on_device.insert(names.id);
        on_device.len() == 1
    }

    /// True: it was the last one on its device.
    pub(crate) fn remove(&mut self, names: Names) -> bool {
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

    pub(crate) fn connection(&self, id: usize) -> Option<&Arc<ConnectionEnd>> {
        self.connections.get(&id).map(|entry| &entry.end)
    }

    /// The value that keeps this device open; None: no connection uses it.
    pub(crate) fn device(&self, device: usize) -> Option<&I> {
        let id = self.devices.get(&device)?.iter().next()?;
        self.connections.get(id).map(|entry| &entry.keeps_open)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<ConnectionEnd>> {
        self.connections.values().map(|entry| &entry.end)
    }

    /// The connections that an asynchronous event of this device concerns.
    pub(crate) fn concerned(&self, device: usize, concerns: Concerns) -> Vec<Arc<ConnectionEnd>> {
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
    fn three() -> (Registry<&'static str>, [Arc<ConnectionEnd>; 3]) {
        let mut registry = Registry::default();
        let ends = NAMES.map(|names| Arc::new(ConnectionEnd::new(names.id, None)));
        let is_first = std::array::from_fn(|index| registry.insert(NAMES[index], Arc::clone(&ends[index]), "open"));
        assert_eq!(is_first, [true, false, true]);
        (registry, ends)
    }

    #[test]
    fn an_event_reaches_the_connections_that_it_concerns() {
        let (registry, ends) = three();
        let concerned = |concerns| {
            let concerned = registry.concerned(1, concerns);
            ends.each_ref()
                .map(|end| concerned.iter().any(|one| Arc::ptr_eq(one, end)))
        };
        assert_eq!(concerned(Concerns::QueuePair(21)), [false, true, false]);
        assert_eq!(concerned(Concerns::CompletionQueue(12)), [true, false, false]);
        assert_eq!(concerned(Concerns::CompletionQueue(13)), [true, false, false]);
        assert_eq!(concerned(Concerns::Device), [true, true, false]);
        assert_eq!(concerned(Concerns::News), [false; 3]);
        assert!(registry.connection(30).is_some_and(|end| Arc::ptr_eq(end, &ends[2])));
        assert!(registry.connection(31).is_none(), "a queue pair is no id");
    }

    #[test]
    fn a_connection_that_was_removed_is_found_under_none_of_its_names() {
        let (mut registry, ends) = three();
        assert!(!registry.remove(NAMES[0]), "another one is on it");
        assert!(registry.connection(10).is_none());
        for concerns in [11]
            .map(Concerns::QueuePair)
            .into_iter()
            .chain([12, 13].map(Concerns::CompletionQueue))
        {
            assert!(registry.concerned(1, concerns).is_empty(), "{concerns:?}");
        }
        assert_eq!(registry.concerned(1, Concerns::Device).len(), 1);
        assert_eq!(registry.device(1), Some(&"open"));
        assert!(registry.remove(NAMES[1]));
        assert_eq!(registry.device(1), None);
        assert!(registry.all().all(|end| Arc::ptr_eq(end, &ends[2])));
    }
}

//! Objects by number.

/// A list of objects. Numbers of removed objects are used again.
#[derive(Debug)]
pub struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds an object, and returns its number.
    pub fn add(&mut self, thing: T) -> usize {
        match self.free.pop() {
            Some(number) => {
                self.places[number] = Some(thing);
                number
            }
            None => {
                self.places.push(Some(thing));
                self.places.len() - 1
            }
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, number: usize) -> Option<T> {
        let thing = self.places.get_mut(number)?.take()?;
        self.free.push(number);
        Some(thing)
    }

    /// Returns the object with this number.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&T> {
        self.places.get(number)?.as_ref()
    }

    /// Returns the object with this number.
    #[inline]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.places.get_mut(number)?.as_mut()
    }

    /// Returns the numbers of all objects.
    pub fn numbers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.places.len()).filter(|&number| self.places[number].is_some())
    }

    /// Returns a number above all that were ever in use.
    pub fn end(&self) -> usize {
        self.places.len()
    }

    /// Returns true if there is no object.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.len() == self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slab = Slab::default();
        let (a, b) = (slab.add('a'), slab.add('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!((slab.remove(a), slab.get(b), slab.is_empty()), (None, Some(&'b'), false));
        assert_eq!(slab.add('c'), a);
        assert_eq!((slab.numbers().collect::<Vec<_>>(), slab.end()), (vec![a, b], 2));
        assert_eq!((slab.remove(a), slab.remove(b)), (Some('c'), Some('b')));
        assert!(slab.is_empty());
    }
}

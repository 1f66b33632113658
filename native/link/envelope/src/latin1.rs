//! Atoms in Latin-1.

/// Writes the text in UTF-8. None: `room` is too small.
pub fn to_utf8<'r>(text: &[u8], room: &'r mut [u8]) -> Option<&'r [u8]> {
    let mut bytes = 0;
    for &byte in text {
        let encoded = char::from(byte);
        let next = room.get_mut(bytes..bytes + encoded.len_utf8())?;
        encoded.encode_utf8(next);
        bytes += encoded.len_utf8();
    }
    room.get(..bytes)
}

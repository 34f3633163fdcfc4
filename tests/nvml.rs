//! A stand-in for NVIDIA's management library with three cards, the last of them cut by MIG. Only what the agent asks.
#![allow(non_snake_case, unsafe_code, reason = "the names and pointers are NVIDIA's")]
#![allow(missing_docs, clippy::missing_safety_doc, reason = "as nvml.h says; the caller's buffers are large enough")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

const SUCCESS: c_int = 0;
const NOT_FOUND: c_int = 6;

struct Card {
    uuid: &'static CStr,
    name: &'static CStr,
    bytes: u64,
    cut: c_uint,
}

static CARDS: [Card; 3] = [
    Card {
        uuid: c"GPU-6f2a1c9e-0b57-4d1e-9c3a-51d0e8b7a001",
        name: c"NVIDIA H100 80GB HBM3",
        bytes: 85_520_809_984,
        cut: 0,
    },
    Card {
        uuid: c"GPU-6f2a1c9e-0b57-4d1e-9c3a-51d0e8b7a002",
        name: c"NVIDIA A100-SXM4-40GB",
        bytes: 42_949_672_960,
        cut: 0,
    },
    Card {
        uuid: c"GPU-6f2a1c9e-0b57-4d1e-9c3a-51d0e8b7a003",
        name: c"NVIDIA H100 80GB HBM3",
        bytes: 85_520_809_984,
        cut: 1,
    },
];

/// `nvmlMemory_v2_t`.
#[repr(C)]
pub struct Memory {
    version: c_uint,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// A handle is the address of the card.
unsafe fn card<'a>(handle: *const c_void) -> &'a Card {
    unsafe { &*handle.cast() }
}

unsafe fn write(text: &CStr, to: *mut c_char) -> c_int {
    unsafe { to.copy_from_nonoverlapping(text.as_ptr(), text.to_bytes_with_nul().len()) };
    SUCCESS
}

unsafe fn find(handle: *mut *const c_void, is_it: impl Fn(usize, &Card) -> bool) -> c_int {
    let Some((_, card)) = CARDS.iter().enumerate().find(|(at, card)| is_it(*at, card)) else { return NOT_FOUND };
    unsafe { *handle = std::ptr::from_ref(card).cast() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, _: c_uint) -> c_int {
    unsafe { write(c"570.86.15", version) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int {
    unsafe { *count = CARDS.len() as c_uint };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut *const c_void) -> c_int {
    unsafe { find(handle, |at, _| at == index as usize) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, handle: *mut *const c_void) -> c_int {
    let uuid = unsafe { CStr::from_ptr(uuid) };
    unsafe { find(handle, |_, card| card.uuid == uuid) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(handle: *const c_void, uuid: *mut c_char, _: c_uint) -> c_int {
    unsafe { write(card(handle).uuid, uuid) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetName(handle: *const c_void, name: *mut c_char, _: c_uint) -> c_int {
    unsafe { write(card(handle).name, name) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(handle: *const c_void, memory: *mut Memory) -> c_int {
    let total = unsafe { card(handle) }.bytes;
    unsafe { (*memory).total = total };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(handle: *const c_void, now: *mut c_uint, next: *mut c_uint) -> c_int {
    let cut = unsafe { card(handle) }.cut;
    unsafe { (*now, *next) = (cut, cut) };
    SUCCESS
}

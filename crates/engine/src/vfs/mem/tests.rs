use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn read_all(vfs: &MemVfs, name: &str) -> Vec<u8> {
    vfs.file_bytes(name).expect("the file exists")
}

/// Everything that any of many power losses leaves of file `name`.
fn all_images(vfs: &MemVfs, name: &str) -> BTreeSet<Option<Vec<u8>>> {
    let mut prng = Prng::new(1);
    let images = (0..2000).map(|_| vfs.crash_image(&mut prng).file_bytes(name));
    images.collect()
}

proptest! {
    #[test]
    fn reads_see_what_a_plain_vector_holds(
        writes in prop::collection::vec(
            (0u64..20_000, prop::collection::vec(0u8..3, 0..6_000)),
            0..12,
        ),
        offset in 0u64..30_000,
        len in 0usize..9_000,
    ) {
        let vfs = MemVfs::new();
        let file = vfs.create("a").expect("a new file");
        let mut twin: Vec<u8> = Vec::new();
        for (at, bytes) in &writes {
            file.write_at(bytes, *at).expect("there is room");
            let (at, end) = (*at as usize, *at as usize + bytes.len());
            twin.resize(twin.len().max(end), 0);
            twin[at..end].copy_from_slice(bytes);
        }
        prop_assert_eq!(&read_all(&vfs, "a"), &twin);
        let mut buf = vec![9; len];
        let n = file.read_at(&mut buf, offset, Wait::Block).expect("the power is on");
        let from = twin.len().min(offset as usize);
        let to = twin.len().min(offset as usize + len);
        prop_assert_eq!(&buf[..n], &twin[from..to]);
    }

    #[test]
    fn what_was_synced_survives_every_power_loss(
        seed in any::<u64>(), bytes in prop::collection::vec(any::<u8>(), 1..9_000),
    ) {
        let vfs = MemVfs::new();
        let file = vfs.create("a").expect("a new file");
        file.write_at(&bytes, 0).expect("there is room");
        file.sync().expect("the power is on");
        vfs.sync_folder().expect("the power is on");
        file.write_at(&[1; 3000], bytes.len() as u64).expect("there is room");
        let image = vfs.crash_image(&mut Prng::new(seed));
        prop_assert_eq!(&read_all(&image, "a")[..bytes.len()], &bytes[..]);
    }
}

#[test]
fn unsynced_sectors_survive_in_every_combination() -> io::Result<()> {
    let vfs = MemVfs::new();
    let file = vfs.create("a")?;
    file.write_at(&[1; 1024], 0)?;
    file.sync()?;
    vfs.sync_folder()?;
    file.write_at(&[2; 1024], 0)?;
    file.write_at(&[3; 512], 512)?;
    let seen: BTreeSet<(u8, u8)> = all_images(&vfs, "a")
        .into_iter()
        .map(|bytes| bytes.expect("the name is durable"))
        .map(|bytes| (bytes[0], bytes[512]))
        .collect();
    let all = [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)];
    assert_eq!(seen, BTreeSet::from(all));
    Ok(())
}

#[test]
fn an_unsynced_length_survives_or_not() -> io::Result<()> {
    let vfs = MemVfs::new();
    let file = vfs.create("a")?;
    vfs.sync_folder()?;
    file.write_at(&[1; 512], 0)?;
    file.write_at(&[1; 512], 512)?;
    let lens: BTreeSet<usize> = all_images(&vfs, "a")
        .into_iter()
        .map(|bytes| bytes.expect("the name is durable").len())
        .collect();
    assert_eq!(lens, BTreeSet::from([0, 512, 1024]));
    Ok(())
}

#[test]
fn bytes_behind_a_lost_length_do_not_come_back() -> io::Result<()> {
    let vfs = MemVfs::new();
    let file = vfs.create("a")?;
    vfs.sync_folder()?;
    file.write_at(&[1; 100], 0)?;
    file.sync()?;
    file.write_at(&[2; 100], 100)?;
    let mut prng = Prng::new(1);
    let mut seen = 0;
    for image in (0..200).map(|_| vfs.crash_image(&mut prng)) {
        if read_all(&image, "a").len() == 100 {
            let folder = held(&image.shared.folder);
            held(&folder.names["a"].content).write(&[0], 299);
            drop(folder);
            assert!(read_all(&image, "a")[100..].iter().all(|&b| b == 0));
            seen += 1;
        }
    }
    assert!(seen > 0);
    Ok(())
}

#[test]
fn unsynced_names_survive_or_not_and_a_rename_is_atomic() -> io::Result<()> {
    let vfs = MemVfs::new();
    vfs.install("current", b"old");
    vfs.install("gone", b"gone");
    let file = vfs.create("new")?;
    file.write_at(b"new", 0)?;
    file.sync()?;
    vfs.rename("new", "current")?;
    vfs.remove("gone")?;
    let current = all_images(&vfs, "current");
    let both = [Some(b"old".to_vec()), Some(b"new".to_vec())];
    assert_eq!(current, BTreeSet::from(both));
    assert_eq!(all_images(&vfs, "gone").len(), 2);
    vfs.sync_folder()?;
    assert_eq!(all_images(&vfs, "current").len(), 1);
    assert_eq!(all_images(&vfs, "gone"), BTreeSet::from([None]));
    Ok(())
}

#[test]
fn a_file_without_a_durable_name_can_be_lost_although_it_was_synced() -> io::Result<()> {
    let vfs = MemVfs::new();
    let file = vfs.create("a")?;
    file.write_at(b"abc", 0)?;
    file.sync()?;
    assert!(all_images(&vfs, "a").contains(&None));
    Ok(())
}

#[test]
fn after_the_crash_every_call_fails_and_nothing_changes() -> io::Result<()> {
    let vfs = MemVfs::new();
    let file = vfs.create("a")?;
    file.write_at(b"abc", 0)?;
    assert_eq!(vfs.operations(), 2);
    vfs.crash_at(2);
    assert!(!vfs.has_crashed());
    file.read_at(&mut [0], 0, Wait::Block)?;
    assert!(file.sync().is_err());
    assert!(vfs.has_crashed());
    assert!(file.read_at(&mut [0], 0, Wait::Block).is_err());
    assert!(file.write_at(b"x", 0).is_err());
    assert!(vfs.list().is_err());
    assert!(vfs.lock().is_err());
    assert_eq!(read_all(&vfs, "a"), b"abc");
    Ok(())
}

#[test]
fn a_write_at_the_crash_happens_in_part() -> io::Result<()> {
    let vfs = MemVfs::new();
    let file = vfs.create("a")?;
    file.write_at(&[0; 8192], 0)?;
    vfs.crash_at(2);
    assert!(file.write_at(&[1; 8192], 0).is_err());
    let written = read_all(&vfs, "a").iter().filter(|&&b| b == 1).count();
    assert!(written > 0 && written < 8192, "{written}");
    assert_eq!(written % SECTOR_BYTES, 0);
    Ok(())
}

#[test]
fn a_killed_process_leaves_all_writes_and_they_are_still_unsynced() -> io::Result<()> {
    let vfs = MemVfs::new();
    let file = vfs.create("a")?;
    file.write_at(b"abc", 0)?;
    let image = vfs.process_crash_image();
    file.write_at(b"x", 0)?;
    assert_eq!(read_all(&image, "a"), b"abc");
    assert!(all_images(&image, "a").contains(&None));
    image.sync_folder()?;
    assert!(all_images(&image, "a").contains(&Some(Vec::new())));
    Ok(())
}

#[test]
fn a_full_folder_refuses_growth_but_not_overwrites() -> io::Result<()> {
    let vfs = MemVfs::new();
    vfs.set_capacity(1000);
    let file = vfs.create("a")?;
    file.write_at(&[0; 900], 0)?;
    file.write_at(&[1; 900], 0)?;
    let full = file.write_at(&[0; 101], 900).expect_err("no room");
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert_eq!(vfs.room()?.free_bytes, 100);
    vfs.remove("a")?;
    assert_eq!(vfs.room()?.free_bytes, 1000);
    Ok(())
}

#[test]
fn a_drawn_share_of_reads_would_block() -> io::Result<()> {
    let vfs = MemVfs::new();
    let file = vfs.create("a")?;
    vfs.set_would_block(500, 1);
    let refused = (0..100).filter(|_| file.read_at(&mut [0], 0, Wait::Never).is_err());
    assert!((30..70).contains(&refused.count()));
    assert!((0..100).all(|_| file.read_at(&mut [0], 0, Wait::Block).is_ok()));
    Ok(())
}

#[test]
fn a_flipped_bit_rots_this_image_only() {
    let vfs = MemVfs::new();
    vfs.install("a", b"abc");
    let image = vfs.crash_image(&mut Prng::new(1));
    image.flip_bit("a", 8);
    assert_eq!(read_all(&image, "a"), b"acc");
    assert_eq!(read_all(&image.crash_image(&mut Prng::new(1)), "a"), b"acc");
    assert_eq!(read_all(&vfs, "a"), b"abc");
}

#[test]
fn a_folder_is_locked_once() -> io::Result<()> {
    let vfs = MemVfs::new();
    let guard = vfs.lock()?;
    assert!(vfs.clone().lock().is_err());
    assert!(vfs.process_crash_image().lock().is_ok());
    drop(guard);
    vfs.lock()?;
    Ok(())
}

#[test]
fn a_link_appears_in_the_other_folder() -> io::Result<()> {
    let vfs = MemVfs::new();
    vfs.install("a", b"abc");
    let target = Path::new("checkpoint");
    vfs.link_into("a", target)?;
    vfs.remove("a")?;
    let linked = vfs.linked_folder(target).expect("the link made it");
    assert_eq!(read_all(&linked, "a"), b"abc");
    Ok(())
}

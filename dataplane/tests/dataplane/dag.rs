//! CIDs that other tools give for the same bytes. The vectors of several blocks and of the folder were made with
//! ipfs-unixfs-importer (JavaScript): CIDv1, raw leaves, chunks of 1 MiB, 1024 wide.

use proptest::prelude::*;
use selion_dataplane::dag::{self, Block, CHUNK, Entry, Kind, Part};

use crate::support::{pattern, store};

#[test]
fn files_have_the_cids_that_other_tools_give_them() {
    let vectors: [(Vec<u8>, &str); 7] = [
        (b"hello world".to_vec(), "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        (pattern(0), "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"),
        (pattern(1), "bafkreidogqfzz75tpkmjzjke425xqcrmpcib2p5tg44hnbirumdbpl5adu"),
        (pattern(CHUNK - 1), "bafkreielkxdkfu2eicjkgfuykayoada6n6dar2xzclejnxxhyn2niqhnce"),
        (pattern(CHUNK), "bafkreidddocae7lltzjlkooe5a3tmiwsgazn7logjvqk7bzttsidpzhxne"),
        (pattern(CHUNK + 1), "bafybeidjogjfwuhbzwopgd4bn3skcf5m6oz72xshywcndzxgqb623nfclu"),
        (pattern(3 * CHUNK + 17), "bafybeiengxwx4jlbvzg6ykpre7r5jxqvalq7yu4qbcj2w3gzacac33gjza"),
    ];
    for (bytes, cid) in &vectors {
        assert_eq!(dag::cid_of(bytes).to_string(), *cid, "{} bytes", bytes.len());
    }
}

#[test]
fn a_tree_grows_a_level_only_when_a_node_is_full() {
    let zeros = dag::leaf(&vec![0; CHUNK]);
    let root = |leaves: usize| {
        let mut blocks: Vec<Block> = Vec::new();
        let keep = &mut |block| -> Result<(), std::convert::Infallible> {
            blocks.push(block);
            Ok(())
        };
        let Ok(part) = dag::layout(vec![zeros; leaves], None, keep);
        (part, blocks.len())
    };
    let (full, blocks) = root(1024);
    assert_eq!(full.cid.to_string(), "bafybeibqawkaltgjfdebq4no6nmfcvkcw7k52xqzclkwfmrkn6oxw7srmy");
    assert_eq!((full.size, blocks), (1 << 30, 1));
    let (over, blocks): (Part, usize) = root(1025);
    assert_eq!(over.cid.to_string(), "bafybeigt7wofv4vnxbg3titijasuw4ptg5kfztec4smsk7opdt7z6djoxq");
    assert_eq!((over.size, blocks), ((1 << 30) + CHUNK as u64, 3));
}

#[test]
fn the_empty_folder_has_its_well_known_cid() {
    let (block, tsize) = dag::folder_node(Vec::new(), None).unwrap();
    assert_eq!(block.cid.to_string(), "bafybeiczsscdsbs7ffqz55asqdf3smv6klcw3gofszvwlyarci47bgf354");
    assert_eq!((block.bytes.as_slice(), tsize), ([0x0a, 2, 8, 1].as_slice(), 4));
}

#[test]
fn a_folder_has_the_cid_that_other_tools_give_it() {
    let (dir, store) = store();
    let root = dir.path().join("r");
    for (name, bytes) in [
        ("a.txt", b"hello world".to_vec()),
        ("b/c.bin", pattern(3 * CHUNK + 17)),
        ("b/empty", Vec::new()),
        (".hidden", b"x".to_vec()),
        ("Z", b"z".to_vec()),
        ("é", b"e".to_vec()),
    ] {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    std::fs::create_dir(root.join("nothing")).unwrap();
    assert_eq!(
        store.add_path(&root).unwrap().to_string(),
        "bafybeicpyfbyy4vgyvv7lhk3qplk75ksflqxuioj6sid34jrybfnf3way4"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_node_of_a_file_reads_back_as_it_was_written(sizes in prop::collection::vec(1u64..=1 << 40, 1..40)) {
        let parts: Vec<Part> = sizes
            .iter()
            .map(|size| Part { size: *size, tsize: *size, ..dag::leaf(&size.to_le_bytes()) })
            .collect();
        let (block, whole) = dag::file_node(&parts, None);
        dag::verify(&block.cid, &block.bytes).unwrap();
        let node = dag::decode(&block.cid, block.bytes.into()).unwrap();
        prop_assert_eq!(node.size(), Some(whole.size));
        let Kind::File(read) = node.kind else { panic!("not a file") };
        prop_assert!(read.iter().map(|part| (part.cid, part.size)).eq(parts.iter().map(|part| (part.cid, part.size))));
    }

    #[test]
    fn the_order_of_entries_does_not_change_a_folder(
        mut names in prop::collection::hash_set("[a-zA-Z0-9é._ -]{1,12}", 0..20)
            .prop_filter("dots", |names| !names.contains(".") && !names.contains(".."))
            .prop_map(|names| names.into_iter().collect::<Vec<_>>())
            .prop_shuffle()
    ) {
        let entry = |name: &String| {
            let leaf = dag::leaf(name.as_bytes());
            Entry { name: name.clone(), cid: leaf.cid, tsize: leaf.tsize }
        };
        let shuffled = dag::folder_node(names.iter().map(entry).collect(), None).unwrap();
        names.sort();
        let sorted = dag::folder_node(names.iter().map(entry).collect(), None).unwrap();
        prop_assert_eq!(&shuffled, &sorted);
        let Kind::Folder(read) = dag::decode(&sorted.0.cid, sorted.0.bytes.into()).unwrap().kind else {
            panic!("not a folder")
        };
        prop_assert!(read.iter().map(|entry| &entry.name).eq(names.iter()));
    }

    #[test]
    fn any_bytes_at_all_are_read_or_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let leaf = dag::leaf(&bytes);
        let cid = selion_dataplane::Cid::new_v1(dag::DAG_PB, *leaf.cid.hash());
        let _ = dag::decode(&cid, bytes.into());
    }

    #[test]
    fn a_good_node_with_a_few_bytes_changed_is_read_or_refused_without_a_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let parts = [dag::leaf(b"one"), dag::leaf(b"two")];
        let (block, _) = dag::file_node(&parts, None);
        let mut bytes = block.bytes;
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = dag::decode(&block.cid, bytes.into());
    }
}

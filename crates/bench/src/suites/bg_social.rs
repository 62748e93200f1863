//! Chhabra and Sauray, "Benchmarking HBase in Distributed Mode".
//!
//! The document ran the BG social network benchmark on 1, 2 and 4 nodes.
//!
//! Users, their friends and resources are loaded by 1, 10 and 100 threads with no image, one of 12 kB or of 512 kB.
//! Then threads view profiles, list friends, or do all nine actions in three mixes. Every read is checked against the
//! writes that were acknowledged before it. Runs last 180 s.
//!
//! The document's tables have cells that were copied from others by mistake (its column of 2 nodes and 50K users equals
//! that of 4 nodes and 10K users, and more). Its figures show shapes, and none of them is a requirement.

use super::recipe::{Measure, Recipe};
use super::sizing::Sizing;
use crate::plan::{Activity, Experiment, Metric, SocialAction, SocialMode, SocialSpec, Stop};
use crate::social;

/// Threads of every test.
const THREADS: [u32; 3] = [1, 10, 100];

/// Users of the smallest cluster test; also taken for the single node, whose number the document does not give.
const USERS: u64 = 10_000;

/// Friends of each user, where they are not the experiment: BG's default.
const FRIENDS: u32 = 4;

/// Seconds of each run.
const SECONDS: f64 = 180.0;

/// Seconds of quick runs: 36 of them have to fit.
const QUICK_SECONDS: f64 = 0.5;

/// Name, file-name safe name, and bytes of an image.
const IMAGES: [(&str, &str, u32); 3] = [
    ("no image", "none", 0),
    ("12 kB image", "12k", 12_000),
    ("512 kB image", "512k", 512_000),
];

/// Figures for 1, 10 and 100 threads.
type ByThreads = [f64; 3];

/// Seconds to load a single node, for each image.
const LOAD_SECONDS: [ByThreads; 3] = [[180.0, 90.0, 90.0], [180.0, 90.0, 90.0], [390.0, 300.0, 320.0]];

/// View Profile on a single node, for each image.
const VIEW_PROFILE: [ByThreads; 3] = [
    [4_685.0, 13_241.0, 12_741.0],
    [3_409.0, 9_226.0, 8_901.0],
    [518.0, 832.0, 634.0],
];

/// Name of a mix, its share of updates in words, actions each second and percentage of stale reads on two nodes.
const MIXES: [(&str, &str, ByThreads, ByThreads); 3] = [
    (
        "very-low",
        "0.1 % updates",
        [875.0, 2_871.0, 2_960.0],
        [0.0, 0.04, 0.11],
    ),
    ("low", "1 % updates", [847.0, 2_653.0, 2_752.0], [0.12, 0.18, 0.27]),
    ("high", "10 % updates", [727.0, 2_347.0, 2_492.0], [0.33, 0.39, 0.55]),
];

const PASTED: &str =
    "The document's tables contain cells copied from others by mistake: compare shapes, and trust no single figure.";

const LAYOUT: &str = "BG leaves the layout of rows to the adapter of each store; the documentation of the bench's social network describes its layout.";

const ONE_NODE: &str = "The document's single node had 8 GB and a solid-state disk, its clusters 3.8 GB a node; here the address determines the machine.";

pub(super) fn experiments(sizing: &Sizing) -> Vec<Experiment> {
    vec![
        load_time(sizing),
        cluster_load_time(sizing),
        view_profile(sizing),
        list_friends(sizing),
        mixes(sizing),
        staleness(sizing),
        nodes(sizing),
        soar(sizing),
    ]
}

fn spec(users: u64, friends: u32, image_bytes: u32) -> SocialSpec {
    SocialSpec {
        users,
        friends,
        resources: 10,
        image_bytes,
        zipf_mean: 0.27,
        mode: SocialMode::Load,
    }
}

/// Users with images of a size: quick tables of 512 kB images must stay small.
fn users(sizing: &Sizing, image_bytes: u32) -> u64 {
    sizing.count(USERS, if image_bytes > 100_000 { 100 } else { 300 })
}

fn recipe<'a>(sizing: &'a Sizing, id: &str, title: &str, about: &str) -> Recipe<'a> {
    Recipe::new(sizing, id, title, about)
        .numbers("threads", "")
        .differs(PASTED)
        .differs(LAYOUT)
        .differs(ONE_NODE)
}

/// Creates the tables. Quick ones are not split, because creating and dropping many tablets takes longer than the run.
fn create(recipe: &mut Recipe<'_>, spec: &SocialSpec) {
    for mut table in social::tables(spec) {
        if recipe.sizing.quick {
            table.splits.clear();
        }
        recipe.create_table(table);
    }
}

fn loading(spec: &SocialSpec, clients: u32) -> Measure {
    let mode = SocialMode::Load;
    Measure {
        activity: Activity::Social(SocialSpec { mode, ..spec.clone() }),
        clients,
        stop: Stop::Operations(spec.users),
    }
}

fn acting(spec: &SocialSpec, mix: Vec<(SocialAction, f64)>, clients: u32, stop: Stop) -> Measure {
    let mode = SocialMode::Actions(mix);
    Measure {
        activity: Activity::Social(SocialSpec { mode, ..spec.clone() }),
        clients,
        stop,
    }
}

/// Reads as many profiles and friend lists as there are users. Every response is compared with the load.
fn check(recipe: &mut Recipe<'_>, spec: &SocialSpec, label: &str) {
    let mix = vec![(SocialAction::ViewProfile, 1.0), (SocialAction::ListFriends, 1.0)];
    let looks = if recipe.sizing.quick {
        spec.users.min(50)
    } else {
        spec.users
    };
    recipe.verify(label, acting(spec, mix, 4, Stop::Operations(looks)));
}

/// Creates and fills the tables, and checks them.
fn prepare(recipe: &mut Recipe<'_>, spec: &SocialSpec, label: &str) {
    create(recipe, spec);
    let clients = recipe.sizing.clients(100);
    recipe.plain_load(label, loading(spec, clients));
    check(recipe, spec, &format!("{label}-check"));
}

/// The same actions by 1, 10 and 100 threads.
fn by_threads(recipe: &mut Recipe<'_>, spec: &SocialSpec, label: &str, series: &str, mix: &[(SocialAction, f64)]) {
    for threads in THREADS {
        let stop = recipe.sizing.seconds(SECONDS, QUICK_SECONDS);
        let run = acting(spec, mix.to_vec(), threads, stop);
        recipe.measure(&format!("{label}-{threads}"), series, &threads.to_string(), run);
    }
}

fn publish(recipe: &mut Recipe<'_>, system: &str, series: &str, figures: ByThreads, notes: [String; 3]) {
    for ((threads, figure), note) in THREADS.into_iter().zip(figures).zip(notes) {
        recipe.publish(system, series, &threads.to_string(), figure, &note);
    }
}

fn load_time(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "B18",
        "Load time by threads and images",
        "How long does it take 1, 10 and 100 threads to load all users with their friends and resources, without images and \
         with images of 12 and 512 kB?",
    )
    .metric(Metric::Seconds)
    .differs("The document does not say how many users its single node held: 10,000, its smallest number elsewhere.");
    for ((series, label, bytes), figures) in IMAGES.into_iter().zip(LOAD_SECONDS) {
        let spec = spec(users(sizing, bytes), FRIENDS, bytes);
        for threads in THREADS {
            create(&mut recipe, &spec);
            let label = format!("load-{label}-{threads}");
            recipe.timed_load(&label, series, &threads.to_string(), loading(&spec, threads));
            check(&mut recipe, &spec, &format!("{label}-check"));
        }
        publish(&mut recipe, "HBase", series, figures, Default::default());
    }
    recipe.done()
}

fn cluster_load_time(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "B19",
        "Load time by users, threads and images on clusters",
        "The same for 10,000, 30,000 and 50,000 users on 2 and on 4 nodes, without images and with 12 kB.",
    )
    .metric(Metric::Seconds)
    .differs(
        "The number of nodes is that of the target: give the address of a cluster to repeat the document's. Only the figures \
         of 50,000 users without images are compared.",
    );
    if sizing.quick {
        recipe =
            recipe.differs("Quick runs load a hundredth of 50,000 users with 100 threads and no image, nothing else.");
    }
    for users in [10_000_u64, 30_000, 50_000] {
        for (image, image_label, bytes) in IMAGES.into_iter().take(2) {
            for threads in THREADS {
                if sizing.quick && (users, bytes, threads) != (50_000, 0, 100) {
                    continue;
                }
                let spec = spec(sizing.count(users, users / 100), FRIENDS, bytes);
                let series = format!("{}K users, {image}", users / 1_000);
                let label = format!("load-{}k-{image_label}-{threads}", users / 1_000);
                create(&mut recipe, &spec);
                recipe.timed_load(&label, &series, &threads.to_string(), loading(&spec, threads));
                check(&mut recipe, &spec, &format!("{label}-check"));
            }
        }
    }
    let series = "50K users, no image";
    publish(
        &mut recipe,
        "HBase, 2 nodes",
        series,
        [2_369.0, 932.0, 575.0],
        Default::default(),
    );
    publish(
        &mut recipe,
        "HBase, 4 nodes",
        series,
        [3_233.0, 1_040.0, 470.0],
        Default::default(),
    );
    if sizing.quick {
        recipe.keep_matching_figures();
    }
    recipe.done()
}

fn view_profile(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "B20",
        "View Profile",
        "How many profiles can be viewed each second? One read of a row with an image and two counts.",
    );
    let mix = [(SocialAction::ViewProfile, 1.0)];
    for ((series, label, bytes), figures) in IMAGES.into_iter().zip(VIEW_PROFILE) {
        let spec = spec(users(sizing, bytes), FRIENDS, bytes);
        prepare(&mut recipe, &spec, &format!("load-{label}"));
        by_threads(&mut recipe, &spec, &format!("view-{label}"), series, &mix);
        publish(&mut recipe, "HBase, 1 node", series, figures, Default::default());
    }
    let ten_thousand = || std::array::from_fn(|_| "10,000 users".to_owned());
    publish(
        &mut recipe,
        "HBase, 2 nodes",
        "no image",
        [1_451.0, 5_299.0, 6_041.0],
        ten_thousand(),
    );
    publish(
        &mut recipe,
        "HBase, 4 nodes",
        "no image",
        [1_678.0, 5_799.0, 7_533.0],
        ten_thousand(),
    );
    recipe.done()
}

fn list_friends(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "B21",
        "List Friends",
        "A join by the application: the user's row, then that of each of 10, 20 or 50 friends.",
    )
    .differs("The document also varied images and users; no image and 10,000 users here, as in the figures that are compared.");
    let mix = [(SocialAction::ListFriends, 1.0)];
    for friends in [10_u32, 20, 50] {
        let spec = spec(sizing.count(USERS, 300), friends, 0);
        prepare(&mut recipe, &spec, &format!("load-{friends}"));
        by_threads(
            &mut recipe,
            &spec,
            &format!("list-{friends}"),
            &format!("{friends} friends"),
            &mix,
        );
    }
    publish(
        &mut recipe,
        "HBase, 2 nodes",
        "10 friends",
        [502.0, 1_219.0, 1_367.0],
        Default::default(),
    );
    publish(
        &mut recipe,
        "HBase, 2 nodes",
        "50 friends",
        [205.0, 349.0, 346.0],
        Default::default(),
    );
    recipe.done()
}

fn mixes(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "B22",
        "Three mixes of all actions",
        "All nine actions, with 0.1, 1 and 10 % of updates: how many each second, and how many reads miss an update that was \
         acknowledged before?",
    );
    let spec = spec(users(sizing, 0), FRIENDS, 0);
    prepare(&mut recipe, &spec, "load");
    for (name, series, rates, stale) in MIXES {
        by_threads(&mut recipe, &spec, name, series, &social::mix(name).unwrap_or_default());
        publish(
            &mut recipe,
            "HBase, 2 nodes",
            series,
            rates,
            stale.map(|percent| format!("{percent} % of reads stale")),
        );
    }
    recipe.done()
}

fn staleness(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "B22-staleness",
        "Stale reads in the three mixes",
        "The share of reads that missed an update acknowledged before them. A store that promises consistent rows has none.",
    )
    .metric(Metric::StalePercent);
    if sizing.quick {
        recipe =
            recipe.differs("Quick runs have 100 threads only; the rates of 1 and 10 are in the experiment before.");
    }
    let spec = spec(users(sizing, 0), FRIENDS, 0);
    prepare(&mut recipe, &spec, "load");
    for (name, series, _, stale) in MIXES {
        let mix = social::mix(name).unwrap_or_default();
        for threads in THREADS {
            if sizing.quick && threads != 100 {
                continue;
            }
            let run = acting(&spec, mix.clone(), threads, sizing.seconds(SECONDS, 1.0));
            recipe.measure(&format!("{name}-{threads}"), series, &threads.to_string(), run);
        }
        publish(&mut recipe, "HBase, 2 nodes", series, stale, Default::default());
    }
    if sizing.quick {
        recipe.keep_matching_figures();
    }
    recipe.done()
}

fn nodes(sizing: &Sizing) -> Experiment {
    recipe(
        sizing,
        "B23",
        "A better node or more nodes",
        "View Profile on one larger node, two and four smaller ones. The document saw little change from 2 to 4 nodes but with \
         100 threads, and factors of 1.09 to 1.25 for View Profile.",
    )
    .unavailable(
        "Compares machines, not runs. Run this suite against each (one larger node, clusters of 2 and 4), and compare the \
         bundles with `stele-bench report A B C`; View Profile is the experiment to look at.",
    )
}

fn soar(sizing: &Sizing) -> Experiment {
    let mut recipe = recipe(
        sizing,
        "SoAR",
        "Social action rating",
        "The highest rate of actions at which 95 % take at most 100 ms and at most 0.01 % of reads are unpredictable, which is \
         how BG itself sums up a store. The document does not use it.",
    )
    .differs("BG rates runs of ten minutes; quick runs of a second show how the rating is made, not its real value.");
    let spec = spec(users(sizing, 0), FRIENDS, 0);
    prepare(&mut recipe, &spec, "load");
    let mix = social::mix("low").unwrap_or_default();
    for clients in [1_u32, 2, 4, 8, 16, 32, 64] {
        let run = acting(&spec, mix.clone(), clients, sizing.seconds(600.0, 0.7));
        recipe.measure(&format!("clients-{clients}"), "1 % updates", &clients.to_string(), run);
    }
    recipe.done()
}

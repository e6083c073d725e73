//! Widths, stretches and rests, with clients that become slower with each page under way.

use super::*;
use proptest::prelude::*;

const ME: MemberIndex = MemberIndex(0);

/// A made-up cluster: clients ask at a rate, and their rounds take longer the wider a load is.
struct Town {
    pace: LoadPace,
    now_us: u64,
    told: Foreground,
    /// Rounds a second.
    rate: u64,
    /// Microseconds of a round without a load, and those that each page under way adds to it.
    calm_us: u64,
    page_adds_us: u64,
    /// How long a page takes.
    page_us: u64,
    loaded: u64,
    clean_us: u64,
}

impl Town {
    fn new(rate: u64, calm_us: u64, page_adds_us: u64) -> Town {
        let mut pace = LoadPace::new();
        pace.begin(0);
        Town {
            pace,
            now_us: 0,
            told: Foreground::default(),
            rate,
            calm_us,
            page_adds_us,
            page_us: 2_000,
            loaded: 0,
            clean_us: 0,
        }
    }

    fn pass(&mut self, us: u64, pages: u64) {
        let so_far = |now_us: u64| self.rate * now_us / 1_000_000;
        let rounds = so_far(self.now_us + us) - so_far(self.now_us);
        self.now_us += us;
        self.told.rounds += rounds;
        self.told.sum_us += rounds * (self.calm_us + pages * self.page_adds_us);
    }

    /// Loads for so long, or rests as the pace wants it.
    fn run(&mut self, for_us: u64) {
        let until_us = self.now_us + for_us;
        while self.now_us < until_us {
            if self.pace.wants_look(self.now_us, 0) {
                let look = ForegroundLook::from([(ME, self.told)]);
                self.pace.looked(self.now_us, look);
            }
            match self.pace.pages_max() {
                0 => {
                    self.clean_us += 1_000;
                    self.pass(1_000, 0);
                }
                pages => {
                    self.pass(self.page_us, pages as u64);
                    self.loaded += pages as u64;
                    self.pass(self.pace.rest_us(self.page_us), 0);
                }
            }
        }
    }
}

#[test]
fn without_clients_a_load_takes_all_there_is() {
    let mut town = Town::new(0, 1_000, 10_000);
    town.run(1_000_000);
    assert_eq!(town.pace.width, PACE_WIDTH_MAX);
    assert_eq!(town.pace.page_bytes(), LOAD_PAGE_BYTES);
    let before = town.clean_us;
    town.run(20_000_000);
    assert_eq!(
        town.clean_us, before,
        "no client asked, so no stretch is clean"
    );
    assert_eq!(town.pace.rest_us(town.page_us), 0);
}

#[test]
fn clients_that_come_are_given_way_to_within_a_stretch() {
    let mut town = Town::new(0, 1_000, 4_000);
    town.run(5_000_000);
    town.rate = 5_000;
    town.run(6_000_000);
    let most = PACE_WIDTH_ONE / 4;
    assert!(town.pace.width <= most, "{:?}", town.pace);
    assert_eq!(town.pace.page_bytes(), LOAD_PAGE_BYTES_NARROW);
    // And the full width is back when they have gone.
    town.rate = 0;
    town.run(2_000_000);
    assert_eq!(town.pace.width, PACE_WIDTH_MAX);
}

#[test]
fn clients_that_do_not_feel_it_do_not_narrow_a_load() {
    let mut town = Town::new(5_000, 1_000, 20);
    town.run(20_000_000);
    assert_eq!(town.pace.width, PACE_WIDTH_MAX);
}

#[test]
fn a_member_that_was_started_anew_says_nothing_and_the_others_do() {
    let of = |rounds, sum_us| Foreground { rounds, sum_us };
    let other = MemberIndex(1);
    let first = ForegroundLook::from([(ME, of(100, 5_000)), (other, of(70, 900))]);
    let second = ForegroundLook::from([(ME, of(20, 100)), (other, of(80, 1_100))]);
    assert_eq!(between(&first, &second), of(10, 200));
    let without = ForegroundLook::from([(MemberIndex(2), of(8, 8))]);
    assert_eq!(between(&first, &without), of(0, 0));
}

#[test]
fn few_rounds_judge_nothing_until_there_are_enough() {
    let mut town = Town::new(50, 1_000, 100_000);
    let width = town.pace.width;
    town.run(1_500_000);
    assert_eq!(town.pace.width, width, "a dozen rounds on the clean side");
    town.run(8_000_000);
    assert!(town.pace.width < width);
}

proptest! {
    /// At any rate of clients a load goes on, and it adds little to their mean round.
    #[test]
    fn a_load_goes_on_and_clients_keep_their_times(
        rate in 1_000u64..20_000,
        calm_us in 100u64..20_000,
        adds in 0u64..400,
    ) {
        let mut town = Town::new(rate, calm_us, calm_us * adds / 100);
        town.run(10_000_000);
        let (before, loaded, told) = (town.now_us, town.loaded, town.told);
        town.run(20_000_000);
        let took_us = town.now_us - before;
        let pages = town.loaded - loaded;
        prop_assert!(pages * town.page_us * 12 > took_us, "{pages} pages in {took_us} us");
        let rounds = town.told.rounds - told.rounds;
        let mean = (town.told.sum_us - told.sum_us) / rounds;
        // At the least width an eighth of the rounds meets a page.
        let least = calm_us + calm_us * adds / 100 / 7;
        let most = (calm_us + calm_us / 2).max(least + least / 10) + 5;
        prop_assert!(mean <= most, "{mean} us, {calm_us} in calm, {adds} %: {:?}", town.pace);
    }
}

#[test]
fn one_clean_stretch_in_which_the_machine_stood_still_widens_nothing() {
    let mut town = Town::new(5_000, 1_000, 6_000);
    town.run(10_000_000);
    assert_eq!(town.pace.width, PACE_WIDTH_MIN);
    let run_to = |town: &mut Town, is_there: fn(&Stretch) -> bool| {
        while !is_there(&town.pace.stretch) {
            town.run(1);
        }
    };
    let is_loading = |stretch: &Stretch| matches!(stretch, Stretch::Loading { .. });
    run_to(&mut town, is_loading);
    run_to(&mut town, |stretch| {
        matches!(stretch, Stretch::Clean { .. })
    });
    town.calm_us = 90_000;
    run_to(&mut town, is_loading);
    assert!(town.pace.clean[0] > 10_000, "{:?}", town.pace);
    assert_eq!(town.pace.width, PACE_WIDTH_MIN);
}

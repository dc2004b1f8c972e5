//! Brokers whose log directories have no room, or no name for a replica.

use super::*;

#[tokio::test]
async fn a_leader_without_room_gives_way_and_follows_once_there_is_some() {
    let mut cluster = Cluster::start();
    cluster.lead(0, 1, &[1, 2, 3], &[1, 2, 3]);
    produce(&cluster.partition(1), &["a"]).await;
    cluster.reach(&[1, 2, 3], 1).await;
    let hosted = cluster.broker(1);
    let left = || hosted.replicas.left_to_give_way();
    assert_eq!(left(), 0);
    let directory = cluster.partition(1).log().log_directory().clone();
    directory.found_full(clock::now());
    assert_eq!(left(), 1);

    let storage_error = Err(ErrorCode::KafkaStorageError);
    let mut word = cluster.word(0, 1, &[1, 2, 3]);
    assert_eq!(hosted.replicas.apply(word.clone(), &|_| settings()), storage_error);
    assert_eq!(left(), 1, "the controller has not spoken");
    word.leadership.epoch = LeaderEpoch(0);
    let stale = Err(ErrorCode::StaleControllerEpoch);
    assert_eq!(hosted.replicas.apply(word, &|_| settings()), stale);
    // It asks for no other in-sync set meanwhile, which might have nobody who could lead.
    cluster.cut(2);
    let (leader, proposals) = (cluster.partition(1), &hosted.replicas.surroundings().proposals);
    leader.append_as_leader(records(&["lost"]), None, None).unwrap();
    leader.check_in_sync_set();
    assert!(tokio::time::timeout(Duration::ZERO, proposals.take()).await.is_err());
    cluster.mend(2);

    // A controller of Kafka stops the replica, and tells it nothing until it is asked to.
    let name = TopicPartition::new(TOPIC, 0);
    hosted.replicas.give_up(&name, LeaderEpoch(2));
    hosted.replicas.stop(&name, false).unwrap();
    assert_eq!(left(), 1);
    cluster.lead(0, 2, &[2, 3], &[2, 3]);
    assert_eq!(produce(&cluster.partition(2), &["b", "c"]).await, Commit::Done);
    cluster.partition(2).delete_records_before(Offset(1)).unwrap();
    hosted.replicas.apply(cluster.word(0, 2, &[2, 3]), &|_| settings()).unwrap();
    assert_eq!(left(), 0);
    let follower = cluster.partition(1);
    assert!(follower.waits_for_room());
    // What the leader has deleted goes here too: it may make room.
    while follower.log().start_offset() != Offset(1) {
        tokio::task::yield_now().await;
    }
    assert_eq!(follower.log().end_offset(), Offset(2), "nothing is copied");
    assert!(directory.has_room_again(clock::now() + Duration::from_secs(10)));
    let end = cluster.partition(2).log().end_offset();
    cluster.reach(&[1, 2, 3], end.0).await;
    assert_eq!(content(&follower), content(&cluster.partition(2)));

    // Nor does it lead what it is given while there is no room, but where nobody else is in sync.
    directory.found_full(clock::now());
    let word = |cluster: &mut Cluster, isr: &[i32]| {
        cluster.epoch += 1;
        cluster.word(0, 1, isr)
    };
    let among_others = word(&mut cluster, &[1, 2]);
    assert_eq!(hosted.replicas.apply(among_others, &|_| settings()), storage_error);
    assert!(!follower.is_leader());
    let alone = word(&mut cluster, &[1]);
    assert_eq!(hosted.replicas.apply(alone, &|_| settings()), Ok(()));
    wait(&follower, "the lead", &|| follower.is_leader()).await;
    assert_eq!(left(), 0);
}

#[tokio::test]
async fn a_follower_without_room_gives_way_later_and_only_where_something_waits_for_it() {
    let mut cluster = Cluster::start();
    cluster.lead(0, 1, &[1, 2], &[1, 2]);
    produce(&cluster.partition(1), &["a"]).await;
    cluster.reach(&[1, 2], 1).await;
    let (follower, hosted) = (cluster.partition(2), cluster.broker(2));
    let directory = follower.log().log_directory();
    let told = || hosted.replicas.apply(cluster.word(0, 1, &[1, 2]), &|_| settings());
    let (stale, now) = (Err(ErrorCode::StaleControllerEpoch), clock::now());
    directory.found_full(now.checked_sub(Duration::from_secs(4)).unwrap());
    assert_eq!((told(), hosted.replicas.left_to_give_way()), (stale, 0), "nothing waits for it");
    follower.note_room(true);
    let storage_error = Err(ErrorCode::KafkaStorageError);
    assert_eq!(hosted.replicas.left_to_give_way(), 1);
    assert_eq!(told(), storage_error);
    assert!(directory.has_room_again(now + Duration::from_secs(10)));
    directory.found_full(clock::now());
    assert_eq!((told(), hosted.replicas.left_to_give_way()), (stale, 0), "leaders come first");
}

#[tokio::test]
async fn a_replica_that_cannot_be_named_is_refused_and_costs_no_directory() {
    let mut cluster = Cluster::start();
    let hosted = cluster.broker(1);
    for topic in ["a/b", "../up", ""] {
        let topic_partition = TopicPartition::new(topic, 0);
        let word = LeaderAndIsr { topic_partition, ..cluster.word(0, 1, &[1]) };
        let refused = Err(ErrorCode::UnknownServerError);
        assert_eq!(hosted.replicas.apply(word, &|_| settings()), refused, "{topic:?}");
    }
    cluster.lead(0, 1, &[1, 2, 3], &[1, 2, 3]);
    assert_eq!(produce(&cluster.partition(1), &["a"]).await, Commit::Done);
}

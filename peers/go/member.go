package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const pollTime = 50 * time.Millisecond

// A consumer of one topic, until it is told to leave; tells what it owns, reads and commits.
type member struct {
	topic           string
	commitsOnRevoke bool
	client          *kgo.Client
	mutex           sync.Mutex
	owned           map[int32]bool
	positions       map[int32]int64
}

func newMember(be given) *member {
	m := &member{
		topic:           be.Topic,
		commitsOnRevoke: be.CommitOnRevoke,
		owned:           map[int32]bool{},
		positions:       map[int32]int64{},
	}
	client, err := kgo.NewClient(append(groupOptions(be),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
			m.assigned(added[m.topic])
		}),
		kgo.OnPartitionsRevoked(func(_ context.Context, cl *kgo.Client, gone map[string][]int32) {
			if m.commitsOnRevoke {
				m.commit(cl, m.positionsOf(gone[m.topic]))
			}
			m.gone(gone[m.topic])
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			tell("lost", object{"partitions": lost[m.topic]})
			m.gone(lost[m.topic])
		}),
	)...)
	check(err)
	m.client = client
	return m
}

func (m *member) run(heard <-chan command) {
	for {
		select {
		case next := <-heard:
			if next.Do == "leave" {
				m.client.CloseAllowingRebalance()
				tell("left", nil)
				return
			}
			offsets := next.Offsets
			if offsets == nil {
				offsets = m.positionsOf(m.ownedNow())
			}
			m.commit(m.client, offsets)
		default:
			m.poll()
		}
	}
}

func (m *member) poll() {
	patience, cancel := context.WithTimeout(context.Background(), pollTime)
	defer cancel()
	fetches := m.client.PollFetches(patience)
	records := [][]any{}
	m.mutex.Lock()
	fetches.EachRecord(func(record *kgo.Record) {
		m.positions[record.Partition] = record.Offset + 1
		records = append(records, []any{record.Partition, record.Offset, string(record.Value)})
	})
	m.mutex.Unlock()
	if len(records) > 0 {
		tell("records", object{"records": records})
	}
	m.client.AllowRebalance()
}

func (m *member) commit(client *kgo.Client, offsets map[int32]int64) {
	if len(offsets) == 0 {
		return
	}
	wanted := map[int32]kgo.EpochOffset{}
	for partition, offset := range offsets {
		wanted[partition] = kgo.EpochOffset{Epoch: -1, Offset: offset}
	}
	var refused error
	client.CommitOffsetsSync(context.Background(), map[string]map[int32]kgo.EpochOffset{m.topic: wanted},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
			refused = err
			if answer == nil {
				return
			}
			for _, topic := range answer.Topics {
				for _, partition := range topic.Partitions {
					if refused == nil {
						refused = kerr.ErrorForCode(partition.ErrorCode)
					}
				}
			}
		})
	tell("committed", object{"offsets": offsets, "error": codeOf(refused)})
}

func (m *member) ownedNow() []int32 {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.Sorted(maps.Keys(m.owned))
}

func (m *member) positionsOf(partitions []int32) map[int32]int64 {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	found := map[int32]int64{}
	for _, partition := range partitions {
		if offset, known := m.positions[partition]; known {
			found[partition] = offset
		}
	}
	return found
}

func (m *member) assigned(partitions []int32) {
	m.mutex.Lock()
	for _, partition := range partitions {
		m.owned[partition] = true
	}
	m.mutex.Unlock()
	m.tellOwned()
}

func (m *member) gone(partitions []int32) {
	m.mutex.Lock()
	for _, partition := range partitions {
		delete(m.owned, partition)
		delete(m.positions, partition)
	}
	m.mutex.Unlock()
	m.tellOwned()
}

func (m *member) tellOwned() {
	owned := m.ownedNow()
	if owned == nil {
		owned = []int32{}
	}
	tell("owned", object{"partitions": owned})
}

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const workerRecordsMax = 20
const quietMax = 15 * time.Second

var abortedAt time.Time

// Does what it is told, one call of the client at a time.
func produceTransactions(be given, heard <-chan command) {
	client, err := kgo.NewClient(producerOptions(be)...)
	check(err)
	for next := range heard {
		if next.Do == "leave" {
			break
		}
		tell("done", object{"error": codeOf(do(client, next))})
	}
	tell("left", nil)
}

func do(client *kgo.Client, asked command) error {
	background := context.Background()
	switch asked.Do {
	case "init":
		_, _, err := client.ProducerID(background)
		return err
	case "begin":
		return client.BeginTransaction()
	case "send":
		records := []*kgo.Record{}
		for _, record := range asked.Records {
			records = append(records, &kgo.Record{
				Topic: asked.Topic, Partition: record.Partition, Value: []byte(record.Value),
			})
		}
		return client.ProduceSync(background, records...).FirstErr()
	case "commit":
		return client.EndTransaction(background, kgo.TryCommit)
	case "abort":
		if err := client.AbortBufferedRecords(background); err != nil {
			return err
		}
		return client.EndTransaction(background, kgo.TryAbort)
	default:
		return fmt.Errorf("no such command: %s", asked.Do)
	}
}

// From one topic to another, exactly once, until killed or told to leave.
func work(be given, heard <-chan command) {
	options := append(groupOptions(be), producerOptions(be)...)
	options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	session, err := kgo.NewGroupTransactSession(options...)
	check(err)
	_, _, err = session.Client().ProducerID(context.Background())
	check(err)
	tell("ready", nil)
	for {
		select {
		case <-heard:
			session.Close()
			tell("left", nil)
			return
		default:
			workOnce(be, session)
		}
	}
}

func workOnce(be given, session *kgo.GroupTransactSession) {
	patience, cancel := context.WithTimeout(context.Background(), pollTime)
	defer cancel()
	fetches := session.PollRecords(patience, workerRecordsMax)
	if fetches.NumRecords() == 0 {
		if !abortedAt.IsZero() && time.Since(abortedAt) > quietMax {
			// What was aborted is not given again: the session is out of its group, and stays so.
			tell("failed", object{"error": -1, "text": "no records after an abort"})
			os.Exit(1)
		}
		return
	}
	check(session.Begin())
	tell("begun", nil)
	sending := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(record *kgo.Record) {
		made := &kgo.Record{
			Topic:     be.Output,
			Partition: record.Partition,
			Value:     append([]byte("transformed-"), record.Value...),
		}
		session.Produce(context.Background(), made, sending.Promise())
	})
	tell("produced", nil)
	hasSent := sending.Err() == nil
	committed, err := session.End(context.Background(), kgo.TransactionEndTry(hasSent))
	switch {
	case err != nil:
		tell("failed", object{"error": codeOf(err), "text": err.Error()})
		os.Exit(1)
	case committed:
		abortedAt = time.Time{}
		tell("transaction", object{"count": fetches.NumRecords()})
	default:
		abortedAt = time.Now()
		tell("aborted", object{"error": -1})
	}
}

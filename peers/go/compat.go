package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const requestTime = 20 * time.Second

// What the compat tests ask; each request has an id and is answered by a line with that id.
type request struct {
	ID         int64             `json:"id"`
	Operation  string            `json:"operation"`
	Topic      string            `json:"topic"`
	Partition  int32             `json:"partition"`
	Partitions int32             `json:"partitions"`
	Total      int32             `json:"total"`
	Before     int64             `json:"before"`
	Spec       string            `json:"spec"`
	Settings   json.RawMessage   `json:"settings"`
	Records    []record          `json:"records"`
	Positions  [][3]int64        `json:"positions"`
	Consumer   int               `json:"consumer"`
	TimeoutMs  int64             `json:"timeout_ms"`
	Configs    map[string]string `json:"configs"`
	Changes    [][3]string       `json:"changes"`
}

type record struct {
	Partition   *int32   `json:"partition"`
	Offset      int64    `json:"offset"`
	TimestampMs *int64   `json:"timestamp_ms"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []header `json:"headers"`
	AppendTime  bool     `json:"append_time"`
}

// As [name, value].
type header struct {
	Name  string
	Value []byte
}

func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.Name, &h.Value})
}

func (h header) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{h.Name, h.Value})
}

// One client of each kind: requests run side by side, so that a poll may wait meanwhile.
type compat struct {
	bootstrap string
	admin     *kgo.Client
	mutex     sync.Mutex
	consumers map[int]*kgo.Client
	opened    int
}

func answerRequests(be given) {
	admin, err := kgo.NewClient(kgo.SeedBrokers(be.Bootstrap))
	check(err)
	c := &compat{bootstrap: be.Bootstrap, admin: admin, consumers: map[int]*kgo.Client{}}
	for input := lines(); input.Scan(); {
		var asked request
		check(json.Unmarshal(input.Bytes(), &asked))
		go func() {
			answer, err := c.handle(asked)
			if err != nil {
				answer = refusal(err)
			}
			answer["id"] = asked.ID
			write(answer)
		}()
	}
}

func refusal(err error) object {
	var truncated *kgo.ErrDataLoss
	if errors.As(err, &truncated) {
		return object{"error": -1, "exception": "LogTruncationException", "message": err.Error()}
	}
	return object{"error": codeOf(err), "message": err.Error()}
}

func (c *compat) handle(asked request) (object, error) {
	patience, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	switch asked.Operation {
	case "produce":
		return c.produce(patience, asked)
	case "consumer_open":
		return c.open(asked)
	case "consumer_poll":
		return c.poll(asked)
	case "consumer_close":
		return c.close(asked)
	case "list_offsets":
		return c.listOffsets(patience, asked)
	case "create_topic":
		return c.createTopic(patience, asked)
	case "delete_topic":
		return c.deleteTopic(patience, asked)
	case "list_topics":
		return c.listTopics(patience)
	case "describe_topic":
		return c.describeTopic(patience, asked)
	case "create_partitions":
		return c.createPartitions(patience, asked)
	case "delete_records":
		return c.deleteRecords(patience, asked)
	case "describe_configs":
		return c.describeConfigs(patience, asked)
	case "incremental_alter_configs":
		return c.incrementalAlterConfigs(patience, asked)
	case "alter_configs":
		return c.alterConfigs(patience, asked)
	case "describe_cluster":
		return c.describeCluster(patience)
	default:
		return nil, fmt.Errorf("no such operation: %s", asked.Operation)
	}
}

type producerSettings struct {
	Acks            int    `json:"acks"`
	Idempotent      bool   `json:"enable.idempotence"`
	Compression     string `json:"compression.type"`
	LingerMs        int    `json:"linger.ms"`
	RequestBytesMax int32  `json:"max.request.size"`
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}

func (c *compat) produce(patience context.Context, asked request) (object, error) {
	var settings producerSettings
	if err := json.Unmarshal(asked.Settings, &settings); err != nil {
		return nil, err
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(c.bootstrap),
		kgo.AllowAutoTopicCreation(),
		kgo.RequiredAcks(acks[settings.Acks]),
		kgo.ProducerBatchCompression(codecs[settings.Compression]),
		kgo.ProducerLinger(time.Duration(settings.LingerMs) * time.Millisecond),
		kgo.ProducerBatchMaxBytes(settings.RequestBytesMax),
	}
	if !settings.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if len(asked.Records) > 0 && asked.Records[0].Partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []*kgo.Record{}
	for _, sent := range asked.Records {
		records = append(records, toProduce(asked.Topic, sent))
	}
	deliveries := []object{}
	for _, result := range client.ProduceSync(patience, records...) {
		if result.Err != nil {
			deliveries = append(deliveries, refusal(result.Err))
			continue
		}
		deliveries = append(deliveries, object{
			"partition":    result.Record.Partition,
			"offset":       result.Record.Offset,
			"timestamp_ms": result.Record.Timestamp.UnixMilli(),
		})
	}
	return object{"deliveries": deliveries}, nil
}

func toProduce(topic string, sent record) *kgo.Record {
	made := &kgo.Record{Topic: topic, Key: sent.Key, Value: sent.Value}
	if sent.Partition != nil {
		made.Partition = *sent.Partition
	}
	if sent.TimestampMs != nil {
		made.Timestamp = time.UnixMilli(*sent.TimestampMs)
	}
	for _, header := range sent.Headers {
		made.Headers = append(made.Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
	}
	return made
}

type consumerSettings struct {
	Reset               string `json:"auto.offset.reset"`
	BytesMin            int32  `json:"fetch.min.bytes"`
	BytesMax            int32  `json:"fetch.max.bytes"`
	PartitionBytesMax   int32  `json:"max.partition.fetch.bytes"`
	FetchWaitMs         int    `json:"fetch.max.wait.ms"`
	IsolationOfConsumer string `json:"isolation.level"`
}

// Positions are [partition, offset, leader epoch or -1].
func (c *compat) open(asked request) (object, error) {
	var settings consumerSettings
	if err := json.Unmarshal(asked.Settings, &settings); err != nil {
		return nil, err
	}
	reset, isolation := kgo.NoResetOffset(), kgo.ReadUncommitted()
	if settings.Reset == "earliest" {
		reset = kgo.NewOffset().AtStart()
	}
	if settings.IsolationOfConsumer == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	offsets := map[int32]kgo.Offset{}
	for _, position := range asked.Positions {
		offset := kgo.NewOffset().At(position[1])
		if position[2] >= 0 {
			offset = offset.WithEpoch(int32(position[2]))
		}
		offsets[int32(position[0])] = offset
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(c.bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{asked.Topic: offsets}),
		kgo.ConsumeResetOffset(reset),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMinBytes(settings.BytesMin),
		kgo.FetchMaxBytes(settings.BytesMax),
		kgo.FetchMaxPartitionBytes(settings.PartitionBytesMax),
		kgo.FetchMaxWait(time.Duration(settings.FetchWaitMs)*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.opened++
	c.consumers[c.opened] = client
	return object{"consumer": c.opened}, nil
}

func (c *compat) poll(asked request) (object, error) {
	c.mutex.Lock()
	client := c.consumers[asked.Consumer]
	c.mutex.Unlock()
	wait := time.Duration(asked.TimeoutMs) * time.Millisecond
	patience, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	fetches := client.PollFetches(patience)
	for _, failed := range fetches.Errors() {
		var refused *kerr.Error
		var truncated *kgo.ErrDataLoss
		if errors.As(failed.Err, &refused) || errors.As(failed.Err, &truncated) {
			return nil, failed.Err
		}
	}
	records := []record{}
	fetches.EachRecord(func(found *kgo.Record) {
		timestampMs := found.Timestamp.UnixMilli()
		consumed := record{
			Partition:   &found.Partition,
			Offset:      found.Offset,
			TimestampMs: &timestampMs,
			Key:         found.Key,
			Value:       found.Value,
			Headers:     []header{},
			AppendTime:  found.Attrs.TimestampType() == 1,
		}
		for _, sent := range found.Headers {
			consumed.Headers = append(consumed.Headers, header{sent.Key, sent.Value})
		}
		records = append(records, consumed)
	})
	return object{"records": records}, nil
}

func (c *compat) close(asked request) (object, error) {
	c.mutex.Lock()
	client := c.consumers[asked.Consumer]
	delete(c.consumers, asked.Consumer)
	c.mutex.Unlock()
	client.Close()
	return object{}, nil
}

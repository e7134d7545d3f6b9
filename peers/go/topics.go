package main

import (
	"context"
	"encoding/base64"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const timeoutMs = 10_000

func done(code int16) (object, error) {
	return object{}, kerr.ErrorForCode(code)
}

func (c *compat) listOffsets(patience context.Context, asked request) (object, error) {
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition = asked.Partition
	switch asked.Spec {
	case "latest":
		partition.Timestamp = -1
	case "earliest":
		partition.Timestamp = -2
	case "max_timestamp":
		partition.Timestamp = -3
	default:
		timestamp, err := strconv.ParseInt(asked.Spec, 10, 64)
		if err != nil {
			return nil, err
		}
		partition.Timestamp = timestamp
	}
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = asked.Topic
	topic.Partitions = append(topic.Partitions, partition)
	ask := kmsg.NewPtrListOffsetsRequest()
	ask.ReplicaID = -1
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	found := answer.Topics[0].Partitions[0]
	told := object{"offset": found.Offset, "timestamp_ms": found.Timestamp}
	return told, kerr.ErrorForCode(found.ErrorCode)
}

func (c *compat) createTopic(patience context.Context, asked request) (object, error) {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic = asked.Topic
	topic.NumPartitions = asked.Partitions
	topic.ReplicationFactor = -1
	for name, value := range asked.Configs {
		config := kmsg.NewCreateTopicsRequestTopicConfig()
		config.Name, config.Value = name, &value
		topic.Configs = append(topic.Configs, config)
	}
	ask := kmsg.NewPtrCreateTopicsRequest()
	ask.TimeoutMillis = timeoutMs
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	return done(answer.Topics[0].ErrorCode)
}

func (c *compat) deleteTopic(patience context.Context, asked request) (object, error) {
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = &asked.Topic
	ask := kmsg.NewPtrDeleteTopicsRequest()
	ask.TimeoutMillis = timeoutMs
	ask.TopicNames = []string{asked.Topic}
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	return done(answer.Topics[0].ErrorCode)
}

func (c *compat) listTopics(patience context.Context) (object, error) {
	ask := kmsg.NewPtrMetadataRequest()
	ask.Topics = nil // all of them
	answer, err := ask.RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, topic := range answer.Topics {
		names = append(names, *topic.Topic)
	}
	return object{"topics": names}, nil
}

func (c *compat) describeTopic(patience context.Context, asked request) (object, error) {
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &asked.Topic
	ask := kmsg.NewPtrMetadataRequest()
	ask.AllowAutoTopicCreation = false
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	found := answer.Topics[0]
	partitions := make([]object, len(found.Partitions))
	for _, partition := range found.Partitions {
		partitions[partition.Partition] = object{
			"partition": partition.Partition,
			"leader":    partition.Leader,
			"replicas":  partition.Replicas,
			"isr":       partition.ISR,
		}
	}
	id := base64.RawURLEncoding.EncodeToString(found.TopicID[:])
	told := object{"topic_id": id, "partitions": partitions}
	return told, kerr.ErrorForCode(found.ErrorCode)
}

func (c *compat) createPartitions(patience context.Context, asked request) (object, error) {
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = asked.Topic, asked.Total
	ask := kmsg.NewPtrCreatePartitionsRequest()
	ask.TimeoutMillis = timeoutMs
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	return done(answer.Topics[0].ErrorCode)
}

func (c *compat) deleteRecords(patience context.Context, asked request) (object, error) {
	partition := kmsg.NewDeleteRecordsRequestTopicPartition()
	partition.Partition, partition.Offset = asked.Partition, asked.Before
	topic := kmsg.NewDeleteRecordsRequestTopic()
	topic.Topic = asked.Topic
	topic.Partitions = append(topic.Partitions, partition)
	ask := kmsg.NewPtrDeleteRecordsRequest()
	ask.TimeoutMillis = timeoutMs
	ask.Topics = append(ask.Topics, topic)
	answer, err := ask.RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	deleted := answer.Topics[0].Partitions[0]
	told := object{"low_watermark": deleted.LowWatermark}
	return told, kerr.ErrorForCode(deleted.ErrorCode)
}

func (c *compat) describeConfigs(patience context.Context, asked request) (object, error) {
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType = kmsg.ConfigResourceTypeTopic
	resource.ResourceName = asked.Topic
	ask := kmsg.NewPtrDescribeConfigsRequest()
	ask.Resources = append(ask.Resources, resource)
	answer, err := ask.RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	configs := object{}
	for _, config := range answer.Resources[0].Configs {
		configs[config.Name] = object{
			"value":     config.Value,
			"source":    config.Source.String(),
			"read_only": config.ReadOnly,
			"sensitive": config.IsSensitive,
		}
	}
	return object{"configs": configs}, kerr.ErrorForCode(answer.Resources[0].ErrorCode)
}

var alterations = map[string]kmsg.IncrementalAlterConfigOp{
	"SET":      kmsg.IncrementalAlterConfigOpSet,
	"DELETE":   kmsg.IncrementalAlterConfigOpDelete,
	"APPEND":   kmsg.IncrementalAlterConfigOpAppend,
	"SUBTRACT": kmsg.IncrementalAlterConfigOpSubtract,
}

// Changes are [operation, name, value].
func (c *compat) incrementalAlterConfigs(patience context.Context, asked request) (object, error) {
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType = kmsg.ConfigResourceTypeTopic
	resource.ResourceName = asked.Topic
	for _, change := range asked.Changes {
		config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		config.Op, config.Name, config.Value = alterations[change[0]], change[1], &change[2]
		resource.Configs = append(resource.Configs, config)
	}
	ask := kmsg.NewPtrIncrementalAlterConfigsRequest()
	ask.Resources = append(ask.Resources, resource)
	answer, err := ask.RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	return done(answer.Resources[0].ErrorCode)
}

func (c *compat) alterConfigs(patience context.Context, asked request) (object, error) {
	resource := kmsg.NewAlterConfigsRequestResource()
	resource.ResourceType = kmsg.ConfigResourceTypeTopic
	resource.ResourceName = asked.Topic
	for name, value := range asked.Configs {
		config := kmsg.NewAlterConfigsRequestResourceConfig()
		config.Name, config.Value = name, &value
		resource.Configs = append(resource.Configs, config)
	}
	ask := kmsg.NewPtrAlterConfigsRequest()
	ask.Resources = append(ask.Resources, resource)
	answer, err := ask.RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	return done(answer.Resources[0].ErrorCode)
}

func (c *compat) describeCluster(patience context.Context) (object, error) {
	answer, err := kmsg.NewPtrDescribeClusterRequest().RequestWith(patience, c.admin)
	if err != nil {
		return nil, err
	}
	brokers := [][]any{}
	for _, broker := range answer.Brokers {
		brokers = append(brokers, []any{broker.NodeID, broker.Host, broker.Port})
	}
	return object{
		"cluster_id": answer.ClusterID,
		"controller": answer.ControllerID,
		"brokers":    brokers,
	}, kerr.ErrorForCode(answer.ErrorCode)
}

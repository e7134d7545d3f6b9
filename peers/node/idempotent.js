// An idempotent kafkajs producer. It sends the values that it is given, one after the other, and
// prints what it was told of each as one line of JSON: its offset, or the error.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, topic, ...values] = process.argv.slice(2);

async function main() {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING });
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  for (const value of values) {
    const told = { value };
    try {
      const [partition] = await producer.send({ topic, messages: [{ value }] });
      told.offset = Number(partition.baseOffset);
    } catch (error) {
      told.error = error.type || error.message;
    }
    console.log(JSON.stringify(told));
  }
  await producer.disconnect();
}

main();

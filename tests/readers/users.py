"""Gives a user of a Kafka broker its password, by SCRAM: users.py BOOTSTRAP USER PASSWORD"""

import sys

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

bootstrap, user, password = sys.argv[1:]
admin = AdminClient({"bootstrap.servers": bootstrap})
for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
    info = ScramCredentialInfo(mechanism, 4096)
    for answer in admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, password.encode())]).values():
        answer.result(30)
